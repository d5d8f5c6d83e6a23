"""From a loss to updated weights, with and without gradients that overflow."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gpubench_plugin.config.sections import TrainingSection
from gpubench_plugin.training.optimization import Optimization
from gpubench_plugin.training.seeding import deterministic

CPU = torch.device("cpu")
INF = float("inf")
SKIPPED = [False, True, True, False, True, False]

every_kind = pytest.mark.parametrize(
    ("optimizer", "fused"), [("sgd", False), ("sgd", True), ("adamw", False), ("adamw", True)]
)


def optimization(scaler=True, **training):
    weight = nn.Parameter(torch.ones(3))
    section = TrainingSection(learning_rate=0.125, **training)
    made = Optimization(
        [weight],
        training=section,
        device=CPU,
        scaler=torch.amp.GradScaler("cpu", init_scale=4.0) if scaler else None,
    )
    return made, weight


def step(made, weight, *, overflow=False):
    before = weight.detach().clone()
    made.backward((weight * (INF if overflow else 1.0)).sum())
    made.update()
    return bool(weight.detach().equal(before))


@every_kind
@pytest.mark.parametrize("clipping", [None, 1.0])
def test_skipped_steps_are_counted(optimizer, fused, clipping):
    """Steps with infinite gradients leave the weights alone and are counted, others are not."""
    made, weight = optimization(optimizer=optimizer, fused=fused, gradient_clipping=clipping)
    unchanged = [step(made, weight, overflow=overflow) for overflow in SKIPPED]
    assert unchanged == SKIPPED
    assert (made.steps, made.skipped_steps()) == (6, 3)


@pytest.mark.parametrize("fused", [False, True])
def test_momentum_begins_with_the_first_step_that_is_not_skipped(fused):
    """A first step that overflows leaves no momentum behind, whatever was in that memory."""
    with deterministic(CPU):  # memory that nobody filled holds NaN
        made, weight = optimization(fused=fused, momentum=0.9)
        step(made, weight, overflow=True)
        step(made, weight)
        step(made, weight)
    assert weight.tolist() == pytest.approx([1 - 0.125 - 0.125 * 1.9] * 3)


@every_kind
def test_reset_counts_from_zero(optimizer, fused):
    """After a reset only later steps are counted."""
    made, weight = optimization(optimizer=optimizer, fused=fused)
    step(made, weight, overflow=True)
    made.reset()
    step(made, weight)
    step(made, weight, overflow=True)
    assert (made.steps, made.skipped_steps()) == (2, 1)


@every_kind
def test_clipping_limits_the_norm(optimizer, fused):
    """Gradients are scaled down to the configured norm, after unscaling."""
    seen = []
    made, weight = optimization(optimizer=optimizer, fused=fused, gradient_clipping=0.5)
    made.optimizer.register_step_pre_hook(lambda *_: seen.append(weight.grad.norm().item()))
    made.backward((weight * 100).sum())
    made.update()
    assert [pytest.approx(0.5, rel=1e-4)] == seen


def test_schedule_waits_for_skipped_steps():
    """A step that the scaler leaves out does not move the learning rate."""
    made, weight = optimization(scheduler="linear", schedule_steps=4)
    rates = []
    for overflow in (True, False, True, False):
        step(made, weight, overflow=overflow)
        rates.append(made.learning_rate)
    assert rates == [0.125, 0.09375, 0.09375, 0.0625]
