"""Broadcast from rank zero, as when weights are distributed."""

from __future__ import annotations

from torch import Tensor
from torch import distributed as dist

from gpubench_plugin.workloads.collectives.base import Collective


class Broadcast(Collective):
    """Broadcast in place from rank zero."""

    name = "broadcast"
    in_place = True
    whole = True

    def expected_output(self) -> Tensor:
        """The message of rank zero."""
        return self.values(0, count=self.count)

    def run(self, send_buffer: Tensor, recv_buffer: Tensor) -> None:
        """Run the broadcast in place."""
        dist.broadcast(recv_buffer, src=0)
