"""Plugin of pytest: after each benchmark of a trainer, twenty steps of a loop written by hand.

It uses the benchmark's model as it is compiled, its data and precision, and torch's optimizer and
scaler, but neither the steps of the trainer nor the clocks. The file named by :data:`LOOPS` gets
the seconds of a step by node id.
"""

from __future__ import annotations

import inspect
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    import torch

PLUGIN: Final = "gpubench_plugin.cli.gpu_check.hand_loop"
LOOPS: Final = "GPUBENCH_HAND_LOOPS"

STEPS: Final = 20
_WARM_UP: Final = 5
_PASSES: Final = 3
"""Of twenty steps, whose median counts: one may be disturbed."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Run the loop while the benchmark's fixtures, and its precision, are still there."""
    yield
    fixtures: dict[str, Any] = getattr(item, "funcargs", {})
    if "trainer" not in fixtures:
        return
    names = ("trainer", "model", "data", "workload", "precision", "torch_device")
    request = item._request  # type: ignore[attr-defined] # pytest's own of a function
    parts = SimpleNamespace(**{name: request.getfixturevalue(name) for name in names})
    path = Path(os.environ[LOOPS])
    loops = json.loads(path.read_text(encoding="ascii")) if path.exists() else {}
    loops[item.nodeid] = loop_s(hand_written_step(parts), parts.torch_device)
    path.write_text(json.dumps(loops), encoding="ascii")


def hand_written_step(parts: Any) -> Callable[[], None]:
    """A training step as a script would have it, of the benchmark's `parts` by fixture."""
    import torch

    from gpubench_plugin.training.compile_scope import loss_function

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
    import torch

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
