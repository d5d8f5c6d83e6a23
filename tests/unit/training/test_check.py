"""What must hold of a training step."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gpubench_plugin.core.errors import CorrectnessError
from gpubench_plugin.ranks.process_group import RankAgreement
from gpubench_plugin.training.check import (
    check_loss_drop,
    require_gradients,
    require_scalar_loss,
    require_updates,
)

ALONE = RankAgreement()


class Together(RankAgreement):
    """One of two ranks, of which the other says what it is told."""

    world_size = 2

    def __init__(self, *other):
        self._other = iter(other)

    def mean(self, values):
        return [(own + other) / 2 for own, other in zip(values, next(self._other), strict=True)]


def checked(loss):
    seen = []
    return require_scalar_loss(lambda module, batch: loss, seen)(None, None), seen


def test_scalar_passes_through_and_is_seen():
    """A scalar loss is returned as it is, and what was returned can be looked at later."""
    loss = torch.tensor(2.0, requires_grad=True)
    returned, seen = checked(loss)
    assert returned is loss
    assert [(value.item(), value.requires_grad) for value in seen] == [(2.0, False)]


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (torch.zeros(3), r"the loss must be a scalar tensor, not \(3,\)"),
        (torch.zeros(1), r"the loss must be a scalar tensor, not \(1,\)"),
        (0.5, "the loss must be a scalar tensor, not float"),
    ],
)
def test_other_losses_are_refused(loss, message):
    """A loss that is not a scalar or not a tensor is an error that says so."""
    with pytest.raises(CorrectnessError, match=message):
        checked(loss)


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


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_gradient_is_named(value):
    """A gradient with NaN or inf is an error naming its parameter."""
    with pytest.raises(CorrectnessError, match="gradient of parameter weight is not finite"):
        require_gradients(
            net(weight=torch.tensor([[1.0, value]])), require_finite_gradients=True, agreement=ALONE
        )


def test_scaled_gradients_may_overflow():
    """Where a loss scale may make gradients overflow, infinite ones are let through."""
    require_gradients(
        net(weight=torch.tensor([[1.0, float("inf")]])),
        require_finite_gradients=False,
        agreement=ALONE,
    )


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


@pytest.mark.parametrize(("steps", "skipped"), [(0, 0), (3, 0), (3, 2)])
def test_some_updates_are_enough(steps, skipped):
    """Training may skip steps, as long as it does not skip all of them."""
    require_updates(steps, skipped)


def test_skipping_every_step_is_an_error():
    """Training that never updates is an error naming the key that may help."""
    with pytest.raises(CorrectnessError, match=r"all 3 .* skipped .* precision\.init_scale"):
        require_updates(3, 3)


def test_loss_drop_compares_means_of_three():
    """The drop is the mean of the last three losses over the mean of the first three."""
    assert pytest.approx(0.5) == check_loss_drop([4.0, 5.0, 6.0, 9.0, 3.0, 2.5, 2.0], limit=0.6)


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_few_losses_are_compared_by_halves(count):
    """Where three losses would be counted twice, a falling loss still passes."""
    assert check_loss_drop([4.0, 1.0, 1.0, 1.0, 0.5][:count], limit=0.9) < 0.9


def test_loss_that_does_not_drop_is_an_error():
    """A loss at its limit or above is an error naming the key, both means and the way out."""
    message = (
        r"training\.loss_drop=0\.5: in 6 steps .* from 4 to 2, not below 0\.5 .* "
        r"--training\.loss_drop=null"
    )
    with pytest.raises(CorrectnessError, match=message):
        check_loss_drop([4.0, 4.0, 4.0, 2.0, 2.0, 2.0], limit=0.5)


@pytest.mark.parametrize("losses", [[math.nan] + [1.0] * 5, [1.0] * 5 + [math.nan]])
def test_loss_drop_that_is_no_number_is_an_error(losses: list[float]) -> None:
    """A loss that is NaN at the beginning or at the end has not dropped below any limit."""
    with pytest.raises(CorrectnessError, match=r"training\.loss_drop=0\.9: .* nan"):
        check_loss_drop(losses, limit=0.9)


def test_loss_drop_without_a_limit_only_reports():
    """Without a limit a rising loss is no error, nor is a loss of zero."""
    assert check_loss_drop([1.0, 1.0, 1.0, 3.0, 3.0, 3.0], limit=None) == 3.0
    assert check_loss_drop([0.0, 0.0, 0.0, 0.0], limit=None) == 1.0
