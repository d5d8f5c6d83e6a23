"""Which rank has which expert."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Placement:
    """The experts in the `order` in which `ranks` take them, equally many each.

    Places are numbered over all ranks: rank r has places r·n to (r + 1)·n − 1. `rank` is this one.
    """

    order: tuple[int, ...]
    ranks: int = 1
    rank: int = 0

    @property
    def experts(self) -> int:
        """The number of experts, and of places."""
        return len(self.order)

    @property
    def per_rank(self) -> int:
        """Experts of each rank."""
        return self.experts // self.ranks

    @property
    def own(self) -> tuple[int, ...]:
        """The experts of this rank, in its order."""
        start = self.rank * self.per_rank
        return self.order[start : start + self.per_rank]

    @cached_property
    def _is_in_order(self) -> bool:
        return self.order == tuple(range(self.experts))

    @cached_property
    def _places(self) -> dict[torch.device, Tensor]:
        return {}

    def places(self, experts: Tensor) -> Tensor:
        """The place of each of `experts`."""
        if self._is_in_order:
            return experts
        if experts.device not in self._places:  # copied to a device once
            places = torch.tensor([self.order.index(e) for e in range(self.experts)])
            self._places[experts.device] = places.to(experts.device)
        return self._places[experts.device][experts]
