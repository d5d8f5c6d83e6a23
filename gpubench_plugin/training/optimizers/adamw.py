"""Adam with decoupled weight decay (https://arxiv.org/abs/1711.05101)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from gpubench_plugin.training.optimizers.base import OptimizerBuilder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn


class AdamW(OptimizerBuilder):
    """``torch.optim.AdamW``."""

    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """AdamW with the configured rate and weight decay, betas and epsilon torch's."""
        return torch.optim.AdamW(
            parameters,
            lr=self.training.learning_rate,
            weight_decay=self.training.weight_decay,
            fused=self.fused,
        )
