"""Base class of learning rate schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.core.catalog import Function

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler


class LearningRateSchedule(Function[[float], float | None]):
    """Factor of the configured learning rate by progress from 0 to 1; None if constant."""

    decorator = "gpubench_plugin.training.schedulers.base.LearningRateSchedule"

    def build(self, optimizer: Optimizer, steps: int) -> LRScheduler | None:
        """Scheduler of `optimizer` that keeps the last factor after `steps`; None if constant."""
        from torch.optim.lr_scheduler import LambdaLR

        if self(0.0) is None:
            return None
        return LambdaLR(optimizer, lambda step: self(min(step / steps, 1.0)) or 0.0)


BASE = LearningRateSchedule
