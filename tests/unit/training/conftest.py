"""What the tests of this room share: a small workload that can be made to fail, and makers."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from gpubench_plugin.config.sections import ModelSection, PrecisionSection, TrainingSection
from gpubench_plugin.core import catalog
from gpubench_plugin.ranks.agreement import RankAgreement
from gpubench_plugin.training.data.synthetic import Synthetic
from gpubench_plugin.training.model import build_model
from gpubench_plugin.training.trainer import Trainer
from gpubench_plugin.workloads.base import Batch, Workload
from tests.support.presets import preset_of, trainer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


CPU = torch.device("cpu")


def silent(event: object) -> None:
    """A log that nobody reads."""


class Together(RankAgreement):
    """One of two ranks, of which the other says what it is told, in the order of the questions."""

    def __init__(self, *other: Sequence[float]):
        super().__init__()
        self.world_size = 2
        self._other = iter(other)

    def mean(self, values: Iterable[float]) -> list[float]:
        return [(own + other) / 2 for own, other in zip(values, next(self._other), strict=True)]


class Slope(Workload[ModelSection]):
    """Fits y = w·x + b; what its loss and its output become can be set."""

    def __init__(self) -> None:
        super().__init__(ModelSection(name="slope"))
        self.distort: Callable[[torch.Tensor, nn.Module], torch.Tensor] = lambda value, _: value

    def build(self) -> nn.Module:
        return nn.Linear(2, 1)

    def synthetic_batch(
        self, size: int, *, device: torch.device, generator: torch.Generator | None = None
    ) -> Batch:
        inputs = torch.randn(size, 2, device=device, generator=generator)
        return Batch(inputs, inputs.sum(1, keepdim=True))

    def from_images(self, images: torch.Tensor, labels: torch.Tensor) -> Batch:
        return Batch(images.flatten(1)[:, :2].contiguous(), labels.float().unsqueeze(1))

    def from_text(self, tokens: torch.Tensor) -> Batch:
        return Batch(tokens[:, :2].float(), tokens[:, 2:3].float())

    def from_table(self, features: torch.Tensor, targets: torch.Tensor) -> Batch:
        return Batch(features[:, :2].contiguous(), targets.unsqueeze(1))

    def forward(self, module: nn.Module, batch: Batch) -> torch.Tensor:
        return self.distort(module(batch.inputs), module)

    def loss(self, module: nn.Module, batch: Batch) -> torch.Tensor:
        error = module(batch.inputs).float() - batch.targets
        return self.distort(error.square().mean(), module)


@pytest.fixture
def binary_cifar(tmp_path: Path) -> Path:
    """A folder like CIFAR-10's in its binary version: 60 noisy images and 20 held out."""
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    draw = np.random.default_rng(0)
    for name, count in (("data_batch_1.bin", 40), ("data_batch_2.bin", 20), ("test_batch.bin", 20)):
        records = draw.integers(0, 256, (count, 3073), dtype=np.uint8)
        records[:, 0] = np.arange(count) % 10
        (folder / name).write_bytes(records.tobytes())
    return folder


@pytest.fixture
def slope() -> Slope:
    """The small workload."""
    return Slope()


@pytest.fixture
def make_trainer(slope: Slope) -> Callable[..., Trainer]:
    """Builds a trainer of `slope`; keywords are keys of the section ``training``."""

    def make(
        *,
        precision: str = "fp32",
        init_scale: float = 128.0,
        module: nn.Module | None = None,
        data: Any = None,
        no_sync: Any = nullcontext,
        reference: Any = None,
        **training: Any,
    ) -> Trainer:
        chosen = catalog.load("precision", precision)()
        section = TrainingSection(**training)
        if module is None:
            module = build_model(slope, seed=0, device=CPU, precision=chosen)
        return Trainer(
            module=module,
            workload=slope,
            data=data or Synthetic(slope, batch_size=section.batch_size, device=CPU),
            precision=chosen,
            training=section,
            precision_section=PrecisionSection(init_scale=init_scale),
            device=CPU,
            no_sync=no_sync,
            reference=reference,
        )

    return make


@pytest.fixture
def shipped() -> Callable[..., Trainer]:
    """Builds the trainer that a shipped configuration's tiny preset describes."""

    def make(name: str, precision: str, *overrides: str) -> Trainer:
        return trainer_of(preset_of(name, "tiny", *overrides, precision__name=precision))

    return make
