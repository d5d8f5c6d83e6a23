"""All-to-all with equal parts."""

from __future__ import annotations

from torch import Tensor
from torch import distributed as dist

from gpubench_plugin.distributed.collectives.base import Collective


class AllToAll(Collective):
    """Every rank gives a message with something for each rank, and receives one likewise."""

    name = "all-to-all"

    def weight(self, source: int, target: int) -> int:
        """The parts that rank `source` has for rank `target`."""
        return 1

    @property
    def parts(self) -> int:
        """All parts that a rank has to give, which are as many as it receives."""
        return sum(self.weight(self.rank, target) for target in range(self.world_size))

    @property
    def bus_factor(self) -> float:
        """What a rank has for itself crosses no link: (n - 1) / n where all parts are equal."""
        return 1 - self.weight(self.rank, self.rank) / self.parts

    def expected(self) -> Tensor:
        """What each rank has for this one, in the order of ranks."""
        return self.joined(map(self._from, range(self.world_size)), count=self.count)

    def run(self, given: Tensor, received: Tensor) -> None:
        """One exchange."""
        dist.all_to_all_single(received, given)

    def _from(self, source: int) -> Tensor:
        before = sum(self.weight(source, target) for target in range(self.rank))
        own = self.weight(source, self.rank)
        return self.values(source, start=before * self.part, count=own * self.part)
