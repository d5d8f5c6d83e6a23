"""Reduce-scatter."""

from __future__ import annotations

from torch import Tensor
from torch import distributed as dist

from gpubench_plugin.distributed.collectives.base import Collective

# The old name warns on every call since torch 2.13, which has the new one.
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class ReduceScatter(Collective):
    """Every rank gives a message and receives its own part of the sum of all."""

    name = "reduce-scatter"
    sums = True

    @property
    def bus_factor(self) -> float:
        """Each element needs n - 1 transfers to be summed, over n links."""
        return (self.world_size - 1) / self.world_size

    def expected(self) -> Tensor:
        """The part with this rank's number of the sum over the ranks."""
        ranks = range(self.world_size)
        return self.values(*ranks, start=self.rank * self.part, count=self.part)

    def run(self, given: Tensor, received: Tensor) -> None:
        """One scattered sum."""
        _reduce_scatter(received, given)
