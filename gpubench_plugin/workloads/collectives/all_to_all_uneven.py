"""All-to-all with parts of different lengths."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch import distributed as dist

from gpubench_plugin.workloads.collectives.all_to_all import AllToAll


class AllToAllUneven(AllToAll):
    """Uneven all-to-all: one part to itself, two to the next rank, and so on around the ring.

    Every rank sends and receives the same total. The document of nccl-tests covers only the even
    exchange; the factor follows from the same argument: of n(n + 1)/2 parts, one stays.
    """

    name = "all-to-all-uneven"

    def __init__(self, **arguments: Any):
        super().__init__(**arguments)
        ranks = range(self.world_size)
        self._send_sizes = [self.parts_between(self.rank, target) * self.part for target in ranks]
        self._recv_sizes = [self.parts_between(source, self.rank) * self.part for source in ranks]

    def parts_between(self, source: int, target: int) -> int:
        """One more than the forward distance from `source` to `target`."""
        return (target - source) % self.world_size + 1

    def run(self, send_buffer: Tensor, recv_buffer: Tensor) -> None:
        """Run the all-to-all with known split sizes."""
        dist.all_to_all_single(recv_buffer, send_buffer, self._recv_sizes, self._send_sizes)
