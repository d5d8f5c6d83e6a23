"""Whether a loss adds up the samples of a batch."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from gpubench_plugin.training.check import adds_up_samples
from gpubench_plugin.workloads.base import Batch


@pytest.mark.parametrize(
    ("loss", "is_sum"),
    [
        (lambda out, y: cross_entropy(out, y, reduction="sum"), True),
        (lambda out, y: cross_entropy(out, y, reduction="none").sum() / 10, True),
        (cross_entropy, False),
        (lambda out, y: cross_entropy(out, y, ignore_index=0), False),
        (lambda out, y: mse_loss(out, torch.zeros_like(out)), False),
        (lambda out, y: out.sum() * 0, False),
        (lambda out, y: cross_entropy(out[:8], y[:8]) if len(y) == 8 else out[9], False),
    ],
    ids=["sum", "scaled_sum", "mean", "mean_of_some", "mean_square", "zero", "fails"],
)
def test_a_sum_is_told_from_a_mean(loss, is_sum):
    """By an uneven split; model and random numbers are left as they were."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5))
    batch = Batch(torch.randn(8, 4), torch.arange(8) % 5)
    state = torch.get_rng_state()
    found = adds_up_samples(lambda m, b: loss(m(b.inputs), b.targets), module, batch)
    assert found == is_sum
    assert module.training
    assert torch.equal(torch.get_rng_state(), state)
    assert module[1].num_batches_tracked == 0
