"""What must hold of a training step."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.parallel import DistributedDataParallel

from gpubench_plugin.core.errors import CorrectnessError
from gpubench_plugin.ranks.agreement import RankAgreement
from gpubench_plugin.training.check import adds_up_samples, check_loss_drop, require_gradients
from gpubench_plugin.workloads.base import Batch
from tests.support.messages import mentions
from tests.unit.training.conftest import Together

ALONE = RankAgreement()


def net(**gradients):
    module = nn.Linear(2, 1)
    module.weight.grad = gradients.get("weight", torch.ones(1, 2))
    module.bias.grad = gradients.get("bias", torch.ones(1))
    return module


def test_missing_gradient_is_named():
    """A trainable parameter without a gradient is an error naming it as the model does."""
    wrapped = DistributedDataParallel.__new__(DistributedDataParallel)  # without a process group
    nn.Module.__init__(wrapped)
    wrapped.module = net(bias=None)
    for module in (net(bias=None), wrapped):
        with pytest.raises(CorrectnessError, match="parameter bias received no gradient"):
            require_gradients(module, require_finite_gradients=True, agreement=ALONE)


def test_frozen_parameters_need_no_gradient():
    """A parameter that is not trained is not looked at."""
    module = net(bias=None)
    module.bias.requires_grad_(False)
    require_gradients(module, require_finite_gradients=True, agreement=ALONE)


def test_gradients_of_another_rank_are_refused_too():
    """What another rank misses, or finds not finite in its shard, is refused by this one."""
    for other, message in (
        ([(0.0, 1.0), (0.0, 0.0)], "parameter bias received no gradient"),
        ([(0.0, 0.0), (1.0, 0.0)], "gradient of parameter weight is not finite"),
    ):
        with pytest.raises(CorrectnessError, match=message):
            require_gradients(net(), require_finite_gradients=True, agreement=Together(*other))


def test_loss_drop_compares_means_of_three():
    """The drop is the mean of the last three losses over the mean of the first three."""
    assert pytest.approx(0.5) == check_loss_drop([4.0, 5.0, 6.0, 9.0, 3.0, 2.5, 2.0], limit=0.6)


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_few_losses_are_compared_by_halves(count):
    """Where three losses would be counted twice, a falling loss still passes."""
    assert check_loss_drop([4.0, 1.0, 1.0, 1.0, 0.5][:count], limit=0.9) < 0.9


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ([4.0] * 3 + [2.0] * 3, ("in 6 steps", "from 4 to 2", "--training.loss_drop=null")),
        ([math.nan] + [1.0] * 5, ("nan",)),
        ([1.0] * 5 + [math.nan], ("nan",)),
    ],
)
def test_loss_that_does_not_drop_is_an_error(losses: list[float], said: tuple[str, ...]) -> None:
    """One at its limit or above, or NaN at either end; key, means and way out are named."""
    with pytest.raises(CorrectnessError) as failed:
        check_loss_drop(losses, limit=0.5)
    assert mentions(failed.value, "training.loss_drop=0.5: ", *said)


def test_loss_drop_without_a_limit_only_reports():
    """Without a limit a rising loss is no error, nor is a loss of zero."""
    assert check_loss_drop([1.0, 1.0, 1.0, 3.0, 3.0, 3.0], limit=None) == 3.0
    assert check_loss_drop([0.0, 0.0, 0.0, 0.0], limit=None) == 1.0


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
