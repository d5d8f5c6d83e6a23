"""The learning rate as configured, at every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.training.schedulers.base import Schedule

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler


class Constant(Schedule):
    """No scheduler at all: nothing runs in the training step."""

    def share(self, progress: float) -> float:
        """All of it."""
        return 1.0

    def build(self, optimizer: Optimizer) -> LRScheduler | None:
        """None."""
        return None
