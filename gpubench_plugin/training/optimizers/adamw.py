"""Adam with decoupled weight decay (https://arxiv.org/abs/1711.05101)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.training.optimizers.base import OptimizerBuilder


class AdamW(OptimizerBuilder):
    """Adam with decoupled weight decay, ``torch.optim.AdamW``."""

    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """AdamW with the configured learning rate and weight decay, and torch's defaults.

        Raises:
            Unsupported: a parameter is in fp16, in which squares of gradients below 2.4e-4 and
                epsilon (1e-8) are zero, so that updates divide by zero.
        """
        parameters = list(parameters)
        if any(parameter.dtype is torch.float16 for parameter in parameters):
            raise Unsupported(
                "adamw with fp16 parameters divides by squared gradients that underflow in "
                "fp16; use precision amp or bf16-true, or training.optimizer=sgd"
            )
        return torch.optim.AdamW(
            parameters,
            lr=self.training.learning_rate,
            weight_decay=self.training.weight_decay,
            fused=self.fused,
        )
