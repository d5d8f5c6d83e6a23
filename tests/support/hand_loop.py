"""Plugin of pytest: beside each benchmark of a trainer, twenty steps of a loop written by hand.

The loop uses the benchmark's model as it is compiled, its data and precision, and torch's optimizer
and scaler, but neither the steps of the trainer nor the clocks. It alternates with twenty steps of
the trainer by the clock, so that a device that slows down counts for both. The record has its
seconds of a step as ``hand_loop_s``, and as ``from_hand_loop`` how far the trainer's are from them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import torch

from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.core.records import Metric, Observation
from gpubench_plugin.measure.clocks.base import Task
from gpubench_plugin.measure.loop import Variant, clock_for, measure
from gpubench_plugin.ranks.agreement import RankAgreement
from gpubench_plugin.training.compile import loss_function

if TYPE_CHECKING:
    import pytest

STEPS: Final = 20
_WARM_UP: Final = 5
_PASSES: Final = 3  # whose median counts: one may be disturbed
_PARTS: Final = ("trainer", "model", "data", "workload", "precision", "torch_device")


def pytest_gpubench_metrics(item: pytest.Item, observation: Observation) -> Iterator[Metric]:
    """Run the loop while the benchmark's fixtures, and its precision, are still there."""
    if "trainer" not in getattr(item, "funcargs", {}):
        return
    request = item._request  # type: ignore[attr-defined] # pytest's own of a function
    parts = SimpleNamespace(**{name: request.getfixturevalue(name) for name in _PARTS})
    by_hand = hand_written_step(parts)
    for _ in range(_WARM_UP):
        by_hand()
    passes = [
        (clocked_s(parts.trainer.step, parts.torch_device), loop_s(by_hand, parts.torch_device))
        for _ in range(_PASSES)
    ]
    error = abs(median(clocked / hand for clocked, hand in passes) - 1)
    yield Metric(name="hand_loop_s", value=median(hand for _, hand in passes), unit="s")
    yield Metric(name="from_hand_loop", value=error, unit="fraction", better="lower")


def hand_written_step(parts: Any) -> Callable[[], None]:
    """A training step as a script would have it, of the benchmark's `parts` by fixture."""
    device, model, data = parts.torch_device, parts.model.train(), parts.data
    loss_of = loss_function(model, parts.workload)
    optimizer = parts.trainer.optimizer
    scaler = parts.precision.scaler(device, init_scale=2.0**10, growth_interval=2000)
    if scaler is None:
        scaler = torch.amp.GradScaler(device.type, enabled=False)

    def step() -> None:
        batch = next(data)
        with parts.precision.forward_context(device):
            loss = loss_of(model, batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)

    return step


def clocked_s(step: Callable[[], None], device: torch.device) -> float:
    """Seconds of one of twenty steps, by the benchmark's clock."""
    clock = clock_for(device, timing="step", cache="hot")
    clock.prepare()
    section = MeasureSection(by="steps", steps=STEPS, warmup_s=0.1, warmup_max_s=1.0)
    (samples,) = measure(
        [Variant(task=Task(step=step), clock=clock)], section=section, agreement=RankAgreement()
    )
    return sum(samples.block_s) / samples.calls


def loop_s(step: Callable[[], None], device: torch.device) -> float:
    """Seconds of one of twenty steps, by the host's clock."""

    def synchronize() -> None:
        if device.type != "cpu":
            torch.accelerator.synchronize(device)

    synchronize()
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    synchronize()
    return (time.perf_counter() - start) / STEPS
