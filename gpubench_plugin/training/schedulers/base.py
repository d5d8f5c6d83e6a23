"""What a schedule of the learning rate is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.catalog import Function

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler


class LearningRateSchedule(Function[[float], float | None]):
    """The learning rate as a share of the configured one, from 0 (the first step) to 1 (the end).

    None where it stays as configured.
    """

    decorator = "gpubench_plugin.training.schedulers.base.Schedule"

    def build(self, optimizer: Optimizer, steps: int) -> LRScheduler | None:
        """The scheduler of `optimizer`, which after `steps` steps keeps the last share.

        None where the rate stays as configured: then nothing runs in the training step.
        """
        from torch.optim.lr_scheduler import LambdaLR

        if self(0.0) is None:
            return None
        return LambdaLR(optimizer, lambda step: self(min(step / steps, 1.0)) or 0.0)


BASE = LearningRateSchedule
