"""Plugin of pytest: beside each benchmark of a trainer, twenty steps of a loop written by hand.

The loop uses the benchmark's model as it is compiled, its data and precision, and torch's optimizer
and scaler, but neither the steps of the trainer nor the clocks. The record has its seconds of a
step as ``hand_loop_s``, and as ``from_hand_loop`` how far the benchmark's own are from them.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import torch

from gpubench_plugin.core.records import Metric, Observation
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
    hand_s = loop_s(hand_written_step(parts), parts.torch_device)
    samples = observation.samples
    error = abs(sum(samples.block_s) / samples.calls / hand_s - 1)
    yield Metric(name="hand_loop_s", value=hand_s, unit="s")
    yield Metric(name="from_hand_loop", value=error, unit="fraction", better="lower")


def hand_written_step(parts: Any) -> Callable[[], None]:
    """A training step as a script would have it, of the benchmark's `parts` by fixture."""
    device, model, data = parts.torch_device, parts.model.train(), parts.data
    loss_of = loss_function(model, parts.workload)
    optimizer = _equal_optimizer(parts.trainer.optimizer, model)
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


def _equal_optimizer(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> Any:
    """A new optimizer of that class and settings; the old one's state makes room for its own."""
    optimizer.state.clear()
    kind: Any = type(optimizer)
    accepted = inspect.signature(kind).parameters
    settings = {name: v for name, v in optimizer.defaults.items() if name in accepted}
    return kind([p for p in model.parameters() if p.requires_grad], **settings)


def loop_s(step: Callable[[], None], device: torch.device) -> float:
    """Seconds of a step in the median of some loops of twenty, by the host's clock."""

    def synchronize() -> None:
        if device.type != "cpu":
            torch.accelerator.synchronize(device)

    def timed_s() -> float:
        synchronize()
        start = time.perf_counter()
        for _ in range(STEPS):
            step()
        synchronize()
        return (time.perf_counter() - start) / STEPS

    for _ in range(_WARM_UP):
        step()
    return median(timed_s() for _ in range(_PASSES))
