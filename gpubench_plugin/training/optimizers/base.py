"""Optimizer builder base class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.core.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch
    from torch import nn

    from gpubench_plugin.config.sections import TrainingSection


class OptimizerBuilder(ABC):
    """Builds one kind of optimizer from the section ``training``.

    `sharded` parameters are DTensors, as of FSDP2.

    Raises:
        UsageProblem: ``training.fused`` is true, but there is no fused implementation.
    """

    can_fuse: ClassVar[bool] = True
    """Whether torch has a fused implementation."""

    can_fuse_sharded: ClassVar[bool] = True
    """Whether the fused implementation takes sharded parameters."""

    def __init__(self, training: TrainingSection, device: torch.device, *, sharded: bool = False):
        if reason := self.refusal(training, sharded=sharded):
            raise UsageProblem(reason)
        self.training = training
        fuses = device.type != "cpu" and self.can_fuse and (self.can_fuse_sharded or not sharded)
        self.fused = fuses if training.fused is None else training.fused

    @classmethod
    def refusal(cls, training: TrainingSection, *, sharded: bool = False) -> str:
        """Reason why it cannot be built as configured; empty if it can."""
        can_fuse = cls.can_fuse and (cls.can_fuse_sharded or not sharded)
        if not training.fused or can_fuse:
            return ""
        scope = " for sharded parameters" if cls.can_fuse else ""
        return (
            f"training.fused=true: {training.optimizer} has no fused implementation{scope}; "
            "allowed: false, null"
        )

    @abstractmethod
    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """The optimizer of `parameters`."""


BASE = OptimizerBuilder
