"""Broadcast."""

from __future__ import annotations

from typing import Final

from torch import Tensor
from torch import distributed as dist

from gpubench_plugin.distributed.collectives.base import Collective

_ROOT: Final = 0


class Broadcast(Collective):
    """Rank zero gives a message, and every rank receives it."""

    name = "broadcast"
    in_place = True
    whole = True

    @property
    def bus_factor(self) -> float:
        """Every element leaves the root over its one link."""
        return 1.0

    def expected(self) -> Tensor:
        """The message of rank zero."""
        return self.values(_ROOT, count=self.count)

    def run(self, given: Tensor, received: Tensor) -> None:
        """One broadcast, in place."""
        dist.broadcast(received, _ROOT)
