"""Multilayer perceptron that predicts a number from table features."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from gpubench_plugin.config.sections import ModelSection, PositiveInt
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.workloads.base import Batch, Workload, dense_layers


class RegressionSection(ModelSection):
    """Widths of the layers."""

    features: PositiveInt = 10
    """Features per row"""
    hidden_sizes: tuple[PositiveInt, ...] = (64,)
    """Widths of the hidden layers"""


class Regression(Workload[RegressionSection]):
    """Regression: linear layers with ReLU and a scalar output."""

    Section = RegressionSection

    def build(self) -> nn.Module:
        """Linear layers with ReLU from the features to one number."""
        section = self.section
        return nn.Sequential(*dense_layers(section.features, *section.hidden_sizes, 1))

    def synthetic_batch(
        self, size: int, *, device: torch.device, generator: torch.Generator | None = None
    ) -> Batch:
        """Gaussian rows, N×features, with their scaled means as targets."""
        shape = (size, self.section.features)
        features = torch.randn(shape, device=device, generator=generator)
        return Batch(features, features.sum(1) / self.section.features**0.5)

    def from_table(self, features: Tensor, targets: Tensor) -> Batch:
        """The table's rows as they are, if they fit the model."""
        column_count = features.shape[1]
        if column_count != self.section.features:
            raise UsageProblem(
                f"model.features={self.section.features}, but the table's rows have {column_count}"
            )
        return Batch(features, targets)

    def forward(self, module: nn.Module, batch: Batch) -> Tensor:
        """One number per row."""
        numbers: Tensor = module(batch.inputs)
        return numbers.squeeze(1)

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """Mean squared error in fp32, whatever the precision of the output."""
        return mse_loss(self.forward(module, batch).float(), batch.targets.float())
