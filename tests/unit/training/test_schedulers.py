"""Schedules of the learning rate."""

from __future__ import annotations

import pytest
import torch

from gpubench_plugin.core import catalog


def rates(name, *, steps, updates):
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scheduler = catalog.load("schedulers", name).build(optimizer, steps)
    seen = []
    for _ in range(updates):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return seen


@pytest.mark.parametrize("name", catalog.choices("schedulers"))
def test_first_step_has_the_configured_rate(name):
    """Every schedule begins with the configured rate and never exceeds it."""
    seen = rates(name, steps=4, updates=8)
    assert seen[0] == 0.5
    assert max(seen) == 0.5


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("constant", [0.5] * 6),
        ("cosine", [0.5, 0.4267767, 0.25, 0.0732233, 0.0, 0.0]),
        ("linear", [0.5, 0.375, 0.25, 0.125, 0.0, 0.0]),
    ],
)
def test_rates_over_four_steps(name, expected):
    """The rate falls as the schedule says, and stays at its end."""
    assert expected == pytest.approx(rates(name, steps=4, updates=6))


def test_constant_needs_no_scheduler():
    """A constant rate puts nothing into the training step."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    assert catalog.load("schedulers", "constant").build(optimizer, 4) is None
