"""All-reduce, the collective of data parallel training."""

from __future__ import annotations

from torch import Tensor
from torch import distributed as dist

from gpubench_plugin.workloads.collectives.base import Collective


class AllReduce(Collective):
    """All-reduce in place: every rank contributes a message and receives the sum.

    Repeated sums of nonzero values overflow, so zeros are timed; no backend depends on values.
    """

    name = "all-reduce"
    reduces = True
    in_place = True
    whole = True
    output_grows = True

    @property
    def bus_factor(self) -> float:
        """Each element needs n - 1 transfers to reduce and n - 1 to distribute, over n links."""
        return 2 * (self.world_size - 1) / self.world_size

    def expected_output(self) -> Tensor:
        """The sum over all ranks."""
        return self.values(*range(self.world_size), count=self.count)

    def run(self, send_buffer: Tensor, recv_buffer: Tensor) -> None:
        """Run the all-reduce in place."""
        dist.all_reduce(recv_buffer)
