"""All-gather."""

from __future__ import annotations

from torch import Tensor
from torch import distributed as dist

from gpubench_plugin.distributed.collectives.base import Collective

# The old name warns on every call since torch 2.13, which has the new one.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class AllGather(Collective):
    """Every rank gives a part and receives the message of all parts, in the order of ranks."""

    name = "all-gather"

    @property
    def bus_factor(self) -> float:
        """Each element needs n - 1 transfers, over n links."""
        return (self.world_size - 1) / self.world_size

    def given(self) -> Tensor:
        """A part of this rank's values."""
        return self.values(self.rank, count=self.part)

    def expected(self) -> Tensor:
        """The parts of all ranks."""
        parts = (self.values(rank, count=self.part) for rank in range(self.world_size))
        return self.joined(parts, count=self.count)

    def run(self, given: Tensor, received: Tensor) -> None:
        """One gathering."""
        _all_gather(received, given)
