"""The base of all optimizers' builders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch
    from torch import nn

    from gpubench_plugin.configuration.schema import TrainingSection


class OptimizerBuilder(ABC):
    """Builds one kind of optimizer from the section ``training``."""

    def __init__(self, training: TrainingSection, device: torch.device):
        self.training = training
        self.fused = device.type != "cpu" if training.fused is None else training.fused

    @abstractmethod
    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """The optimizer of `parameters`."""


BASE = OptimizerBuilder
