"""A multilayer perceptron that predicts a number from the features of a table's row."""

from __future__ import annotations

from itertools import pairwise

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from gpubench_plugin.config import ModelSection, PositiveInt
from gpubench_plugin.errors import UsageProblem
from gpubench_plugin.workloads.base import Batch, Workload


class RegressionSection(ModelSection):
    """The widths of the layers."""

    features: PositiveInt = Field(10, description="Numbers in a row")
    hidden_sizes: tuple[PositiveInt, ...] = Field((64,), description="Of the hidden layers")


class Regression(Workload[RegressionSection]):
    """Linear layers with ReLU between them; the last one gives one number."""

    Section = RegressionSection

    def build(self) -> nn.Module:
        """The layers, from features through the hidden sizes to the number."""
        widths = [self.section.features, *self.section.hidden_sizes, 1]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    def synthetic_batch(
        self, size: int, *, device: torch.device, generator: torch.Generator | None = None
    ) -> Batch:
        """Rows of normal noise, N×features, and their means, scaled to a variance of one."""
        shape = (size, self.section.features)
        features = torch.randn(shape, device=device, generator=generator)
        return Batch(features, features.sum(1) / self.section.features**0.5)

    def from_table(self, features: Tensor, targets: Tensor) -> Batch:
        """The rows as they are."""
        present = features.shape[1]
        if present != self.section.features:
            raise UsageProblem(
                f"model.features: {self.section.features}; the table's rows have {present}"
            )
        return Batch(features, targets)

    def forward(self, module: nn.Module, batch: Batch) -> Tensor:
        """One number for each of the N rows."""
        numbers: Tensor = module(batch.inputs)
        return numbers.squeeze(1)

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """The mean squared error, in fp32 whatever the precision of the numbers."""
        return mse_loss(self.forward(module, batch).float(), batch.targets.float())
