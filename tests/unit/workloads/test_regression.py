"""The regression of a number from a table's row."""

from __future__ import annotations

import pytest
import torch

from gpubench_plugin.core.errors import UsageProblem


def test_layers_are_as_configured(make_workload):
    """The tiny preset is 10-64-1."""
    shapes = [tuple(p.shape) for p in make_workload("regression", "tiny").build().parameters()]
    assert shapes == [(64, 10), (64,), (1, 64), (1,)]


def test_full_preset_has_143_million_parameters(make_workload):
    """The full preset is 1024-8192-8192-8192-1."""
    with torch.device("meta"):
        module = make_workload("regression", "full").build()
    assert sum(p.numel() for p in module.parameters()) == 142_639_105


def test_other_features_are_refused(make_workload):
    """A table with other features than the model's is refused with both numbers."""
    workload = make_workload("regression", "tiny")
    with pytest.raises(UsageProblem, match=r"model\.features=10, but the table's rows have 3"):
        workload.from_table(torch.zeros(2, 3), torch.zeros(2))


def test_loss_is_the_mean_squared_error(make_workload):
    """One number per row, compared with one target per row."""
    workload = make_workload("regression", "tiny")
    module = workload.build()
    batch = workload.from_table(torch.randn(5, 10), torch.randn(5))
    expected = (module(batch.inputs).squeeze(1) - batch.targets).square().mean()
    torch.testing.assert_close(workload.loss(module, batch), expected)
    assert workload.forward(module, batch).shape == (5,)
