"""Send and receive."""

from __future__ import annotations

from torch import Tensor
from torch import distributed as dist

from gpubench_plugin.distributed.collectives.base import Collective


class SendRecv(Collective):
    """Every rank sends a message to the next one and receives the previous one's, in a ring.

    So odd numbers of ranks need no exception. All messages have one length, since gloo does not
    notice when what is sent and what is received differ.
    """

    name = "send-recv"
    whole = True

    @property
    def bus_factor(self) -> float:
        """Every element leaves its rank over one link."""
        return 1.0

    def expected(self) -> Tensor:
        """The message of the previous rank."""
        return self.values(self._previous, count=self.count)

    def run(self, given: Tensor, received: Tensor) -> None:
        """One message out and one in; as a batch, since NCCL would deadlock on one at a time."""
        both = [
            dist.P2POp(dist.isend, given, (self.rank + 1) % self.world_size),
            dist.P2POp(dist.irecv, received, self._previous),
        ]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    @property
    def _previous(self) -> int:
        return (self.rank - 1) % self.world_size
