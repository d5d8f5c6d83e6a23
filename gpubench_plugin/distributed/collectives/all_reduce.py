"""All-reduce."""

from __future__ import annotations

from torch import Tensor
from torch import distributed as dist

from gpubench_plugin.distributed.collectives.base import Collective


class AllReduce(Collective):
    """Every rank gives a message and receives the sum of all in its place.

    Repeated sums of anything but zeros overflow, so zeros are timed; no backend looks at values.
    """

    name = "all-reduce"
    sums = True
    in_place = True
    whole = True
    grows = True

    @property
    def bus_factor(self) -> float:
        """Each element needs n - 1 transfers to be summed and n - 1 to spread, over n links."""
        return 2 * (self.world_size - 1) / self.world_size

    def expected(self) -> Tensor:
        """The sum over the ranks."""
        return self.values(*range(self.world_size), count=self.count)

    def run(self, given: Tensor, received: Tensor) -> None:
        """One sum, in place."""
        dist.all_reduce(received)
