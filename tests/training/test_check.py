"""What must hold of a training step."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gpubench_plugin.errors import CorrectnessError
from gpubench_plugin.training.check import (
    LossHistory,
    loss_drop,
    require_gradients,
    require_updates,
    scalar,
)


def checked(loss):
    return scalar(lambda module, batch: loss)(None, None)


def test_finite_scalar_passes_through():
    """A finite scalar loss is returned as it is."""
    loss = torch.tensor(2.0)
    assert checked(loss) is loss


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (torch.tensor(float("nan")), "the loss at step 1 is nan"),
        (torch.tensor(float("-inf")), "the loss at step 1 is -inf"),
        (torch.zeros(3), r"the loss must be a scalar tensor, not \(3,\)"),
        (torch.zeros(1), r"the loss must be a scalar tensor, not \(1,\)"),
        (0.5, "the loss must be a scalar tensor, not float"),
    ],
)
def test_other_losses_are_refused(loss, message):
    """A loss that is NaN, infinite, not a scalar or not a tensor is an error that says so."""
    with pytest.raises(CorrectnessError, match=message):
        checked(loss)


def net(**gradients):
    module = nn.Linear(2, 1)
    module.weight.grad = gradients.get("weight", torch.ones(1, 2))
    module.bias.grad = gradients.get("bias", torch.ones(1))
    return module


def test_missing_gradient_is_named():
    """A trainable parameter without a gradient is an error naming it."""
    with pytest.raises(CorrectnessError, match="parameter bias got no gradient"):
        require_gradients(net(bias=None), finite=True)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_gradient_is_named(value):
    """A gradient with NaN or inf is an error naming its parameter."""
    with pytest.raises(CorrectnessError, match="gradient of parameter weight is not finite"):
        require_gradients(net(weight=torch.tensor([[1.0, value]])), finite=True)


def test_scaled_gradients_may_overflow():
    """Where a loss scale may make gradients overflow, infinite ones are let through."""
    require_gradients(net(weight=torch.tensor([[1.0, float("inf")]])), finite=False)


def test_frozen_parameters_need_no_gradient():
    """A parameter that is not trained is not looked at."""
    module = net(bias=None)
    module.bias.requires_grad_(False)
    require_gradients(module, finite=True)


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
    assert pytest.approx(0.5) == loss_drop([4.0, 5.0, 6.0, 9.0, 3.0, 2.5, 2.0], limit=0.6)


def test_loss_that_does_not_drop_is_an_error():
    """A loss at its limit or above is an error naming the key and both means."""
    message = r"training\.loss_drop=0\.5: 6 steps .* from 4 to 2 only"
    with pytest.raises(CorrectnessError, match=message):
        loss_drop([4.0, 4.0, 4.0, 2.0, 2.0, 2.0], limit=0.5)


def test_loss_drop_without_a_limit_only_reports():
    """Without a limit a rising loss is no error, nor is a loss of zero."""
    assert loss_drop([1.0, 1.0, 1.0, 3.0, 3.0, 3.0], limit=None) == 3.0
    assert loss_drop([0.0, 0.0, 0.0, 0.0], limit=None) == 1.0


def test_history_logs_every_n_steps_and_the_last():
    """An event is logged every N steps and at the end, with the step's own loss."""
    events = []
    history = LossHistory(events.append, every=2, state=lambda: {"learning_rate": 0.5})
    for loss in (5.0, 4.0, 3.0):
        history.add(torch.tensor(loss))
    assert history.close() == [5.0, 4.0, 3.0]
    assert events == [
        {"event": "training_step", "step": 2, "loss": 4.0, "learning_rate": 0.5},
        {"event": "training_step", "step": 3, "loss": 3.0, "learning_rate": 0.5},
    ]


def test_history_names_the_step_whose_loss_is_not_finite():
    """A NaN among the losses is an error naming its step."""
    history = LossHistory(lambda event: None, every=3, state=dict)
    history.add(torch.tensor(1.0))
    history.add(torch.tensor(float("nan")))
    with pytest.raises(CorrectnessError, match="the loss at step 2 is nan"):
        history.add(torch.tensor(1.0))
