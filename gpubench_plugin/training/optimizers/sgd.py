"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from gpubench_plugin.training.optimizers.base import OptimizerBuilder


class SGD(OptimizerBuilder):
    """Stochastic gradient descent with momentum, ``torch.optim.SGD``."""

    # torch has no sharding strategy for aten._fused_sgd_, as it has for Adam's.
    can_fuse_sharded = False

    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """SGD with the configured learning rate, momentum and weight decay."""
        parameters = list(parameters)
        optimizer = torch.optim.SGD(
            parameters,
            lr=self.training.learning_rate,
            momentum=self.training.momentum,
            weight_decay=self.training.weight_decay,
            fused=self.fused,
        )
        if self.fused and self.training.momentum:
            # torch leaves the buffer uninitialized if a GradScaler skips the first step. With
            # zeros the first step is the same.
            for parameter in parameters:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return optimizer
