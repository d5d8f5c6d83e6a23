"""The base of all optimizers' builders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch
    from torch import nn

    from gpubench_plugin.configuration.schema import TrainingSection


class OptimizerBuilder(ABC):
    """Builds one kind of optimizer from the section ``training``.

    Raises:
        UsageProblem: ``training.fused`` is asked of an optimizer that has no fused form.
    """

    can_fuse: ClassVar[bool] = True
    """Whether torch has a fused implementation of it."""

    def __init__(self, training: TrainingSection, device: torch.device):
        if training.fused and not self.can_fuse:
            raise UsageProblem(
                f"training.fused=true: {training.optimizer} has no fused form; allowed: false, null"
            )
        self.training = training
        on_accelerator = device.type != "cpu" and self.can_fuse
        self.fused = on_accelerator if training.fused is None else training.fused

    @abstractmethod
    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """The optimizer of `parameters`."""


BASE = OptimizerBuilder
