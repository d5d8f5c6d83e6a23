"""All-gather, by torch's collective into one tensor."""

from __future__ import annotations

from torch import Tensor
from torch import distributed as dist

from gpubench_plugin.workloads.collectives.base import Collective

# torch 2.13 renamed it, and the old name warns on every call.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class AllGather(Collective):
    """All-gather: every rank contributes a part and receives all parts in rank order."""

    name = "all-gather"

    def make_input(self) -> Tensor:
        """The part that this rank contributes."""
        return self.values(self.rank, count=self.part)

    def expected_output(self) -> Tensor:
        """The parts of all ranks."""
        parts = (self.values(rank, count=self.part) for rank in range(self.world_size))
        return self.concatenated(parts)

    def run(self, send_buffer: Tensor, recv_buffer: Tensor) -> None:
        """Gather the parts of all ranks into `recv_buffer`."""
        _all_gather(recv_buffer, send_buffer)
