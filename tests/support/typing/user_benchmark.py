"""A user's benchmark as the type checker sees it; mypy reads it, nobody runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_type

from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.core.records import Measurement, Metric, Observation, Samples

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest
    import torch

    from gpubench_plugin.bench.bench import Bench
    from gpubench_plugin.precision.base import Precision
    from gpubench_plugin.training.trainer import Trainer


def test_own_step(gpubench: Bench, torch_device: torch.device, precision: Precision) -> None:
    """A step of the user's own, with amounts, setup and an assertion on a metric."""
    if torch_device.type == "mps":
        raise Unsupported("no such unit here")
    with precision.forward_context(torch_device):
        measured = gpubench(lambda: None, samples=4, bytes=1e6, setup=lambda: None)
    assert_type(measured, Measurement)
    assert_type(measured.metrics["step_time_s"], Metric)
    assert_type(measured.samples, Samples | None)


def test_as_in_pytest_benchmark(gpubench: Bench) -> None:
    """Arguments of the step, notes, a group, statistics; no other attribute or keyword."""
    gpubench.extra_info["size"] = 3
    assert_type(gpubench.group, str | None)
    gpubench.group = "sums"
    assert_type(gpubench(sum, [1, 2], samples=2), Measurement)
    assert_type(gpubench.pedantic(sum, ([1],), setup=None, rounds=3), Measurement)
    assert gpubench.stats["mean"] > 0
    gpubench.groups = "sums"  # type: ignore[attr-defined]
    gpubench.weave(sum)  # type: ignore[attr-defined]
    gpubench(sum, start=3)  # type: ignore[arg-type]


def test_variants(gpubench: Bench) -> None:
    """Two steps in turns, whose results a function compares."""
    steps = {"eager": lambda: 1.0, "compiled": lambda: 1.0}
    measured = gpubench.compare(steps, check=lambda results: results["eager"] > 0, samples=4)
    assert_type(measured, Measurement)


def test_training(gpubench: Bench, trainer: Trainer) -> None:
    """The training step of a configured workload."""
    gpubench(trainer)


def pytest_gpubench_metrics(item: pytest.Item, observation: Observation) -> Iterable[Metric]:
    """A hook that adds a metric."""
    yield Metric(name=f"calls of {item.name}", value=float(observation.samples.calls), unit="1")
