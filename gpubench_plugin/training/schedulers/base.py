"""The base of all schedules of the learning rate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from torch.optim.lr_scheduler import LambdaLR

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler


class Schedule(ABC):
    """The learning rate as a share of the configured one, over `steps` optimizer steps."""

    def __init__(self, steps: int):
        self.steps = steps

    @abstractmethod
    def share(self, progress: float) -> float:
        """The share at a `progress` from 0 (the first step) to 1 (after `steps` steps)."""

    def build(self, optimizer: Optimizer) -> LRScheduler | None:
        """The scheduler of `optimizer`; after `steps` steps it keeps the last share."""
        return LambdaLR(optimizer, lambda step: self.share(min(step / self.steps, 1.0)))


BASE = Schedule
