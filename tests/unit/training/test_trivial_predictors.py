"""Every convergence target beats what needs no training at all, on the data that are shipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from gpubench_plugin.core import catalog
from gpubench_plugin.training.data.text import read_text
from tests.support.presets import ROOT, preset_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpubench_plugin.config.marks import Preset
    from gpubench_plugin.workloads.base import Batch

NAMES = sorted(path.stem for path in (ROOT / "configs").glob("convergence-*.yaml"))


def targets(batches: Iterable[Batch]) -> torch.Tensor:
    return torch.cat([batch.targets.flatten() for batch in batches])


def majority(held_out: torch.Tensor, trained_on: torch.Tensor) -> float:
    """The accuracy of always naming the class that the training data have most of."""
    return float((held_out == trained_on.mode().values).float().mean())


def mean(held_out: torch.Tensor, trained_on: torch.Tensor) -> float:
    """The squared error of always saying the mean of the training data."""
    return float((held_out - trained_on.mean()).square().mean())


def pairs() -> float:
    """Nats per character of a table of the pairs in the training part, smoothed as is best."""
    tokens = read_text().astype(np.int64)
    cut = int(len(tokens) * 0.9)  # the part that is trained on, as data.source=text has it
    before, after = tokens[:cut], tokens[cut:]
    kinds = tokens.max() + 1
    counts = np.zeros((kinds, kinds))
    np.add.at(counts, (before[:-1], before[1:]), 1)

    def loss(smoothing: float) -> float:
        table = counts + smoothing
        table /= table.sum(axis=1, keepdims=True)
        return float(-np.log(table[after[:-1], after[1:]]).mean())

    return min(map(loss, (0.01, 0.03, 0.1, 0.3, 1.0)))


@pytest.mark.parametrize("preset", ["tiny", "full"])
@pytest.mark.parametrize("name", NAMES)
def test_target_beats_the_trivial_predictor(name: str, preset: Preset) -> None:
    """The commonest class, the mean, or a table of pairs is worse than what training must reach."""
    configuration = preset_of(name, preset)
    training = configuration.training
    workload = catalog.load("workloads", configuration.model.name)(configuration.model)
    if workload.tokens_per_sample is not None:
        assert training.target_loss < pairs()
        return
    data = catalog.load("data", configuration.data.source)(
        workload,
        section=configuration.data,
        batch_size=training.batch_size,
        device=torch.device("cpu"),
    )
    epoch = [next(data) for _ in range(data.steps_per_epoch)]
    trivial = majority if workload.classifies else mean
    found = trivial(targets(data.held_out()), targets(epoch))
    if training.target_accuracy is not None:
        assert training.target_accuracy > found
    else:
        assert training.target_loss < found
