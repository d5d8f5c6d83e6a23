"""All-to-all with equal parts."""

from __future__ import annotations

from torch import Tensor
from torch import distributed as dist

from gpubench_plugin.workloads.collectives.base import Collective


class AllToAll(Collective):
    """All-to-all: every rank sends a part to each rank and receives one from each."""

    name = "all-to-all"

    def parts_between(self, source: int, target: int) -> int:
        """Number of parts that rank `source` sends to rank `target`."""
        return 1

    @property
    def parts(self) -> int:
        """Number of parts a rank sends, equal to the number received."""
        return sum(self.parts_between(self.rank, target) for target in range(self.world_size))

    @property
    def bus_factor(self) -> float:
        """A rank's own part crosses no link: (n - 1) / n for equal parts."""
        return 1 - self.parts_between(self.rank, self.rank) / self.parts

    def expected_output(self) -> Tensor:
        """The parts sent to this rank, in rank order."""
        return self.concatenated(map(self._from, range(self.world_size)))

    def run(self, send_buffer: Tensor, recv_buffer: Tensor) -> None:
        """Exchange the parts between all ranks."""
        dist.all_to_all_single(recv_buffer, send_buffer)

    def _from(self, source: int) -> Tensor:
        offset = sum(self.parts_between(source, target) for target in range(self.rank))
        part_count = self.parts_between(source, self.rank)
        return self.values(source, start=offset * self.part, count=part_count * self.part)
