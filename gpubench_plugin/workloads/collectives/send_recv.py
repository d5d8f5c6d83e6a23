"""Point-to-point messages in a ring of ranks."""

from __future__ import annotations

from torch import Tensor
from torch import distributed as dist

from gpubench_plugin.workloads.collectives.base import Collective


class SendRecv(Collective):
    """Ring exchange: every rank sends to the next and receives from the previous one.

    This works for odd numbers of ranks, too. All messages have one length, since gloo does not
    detect a mismatch of sent and received lengths.
    """

    name = "send-recv"
    whole = True

    def expected_output(self) -> Tensor:
        """The message of the previous rank."""
        return self.values(self._previous, count=self.count)

    def run(self, send_buffer: Tensor, recv_buffer: Tensor) -> None:
        """Send and receive as one batch, since NCCL deadlocks on single operations."""
        operations = [
            dist.P2POp(dist.isend, send_buffer, (self.rank + 1) % self.world_size),
            dist.P2POp(dist.irecv, recv_buffer, self._previous),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()

    @property
    def _previous(self) -> int:
        return (self.rank - 1) % self.world_size
