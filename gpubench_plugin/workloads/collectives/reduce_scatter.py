"""Reduce-scatter, by torch's collective from one tensor."""

from __future__ import annotations

from torch import Tensor
from torch import distributed as dist

from gpubench_plugin.workloads.collectives.base import Collective

# torch 2.13 renamed it, and the old name warns on every call.
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class ReduceScatter(Collective):
    """Reduce-scatter: every rank contributes a message and receives its part of the sum."""

    name = "reduce-scatter"
    reduces = True

    def expected_output(self) -> Tensor:
        """This rank's part of the sum over all ranks."""
        return self.values(*range(self.world_size), start=self.rank * self.part, count=self.part)

    def run(self, send_buffer: Tensor, recv_buffer: Tensor) -> None:
        """Sum the messages and leave this rank's part in `recv_buffer`."""
        _reduce_scatter(recv_buffer, send_buffer)
