"""What pytest-benchmark is given of a measurement, without a session of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from gpubench_plugin.core.records import Samples
from gpubench_plugin.results import pytest_benchmark

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.core.records import Measurement


def carried(measurement: Measurement) -> Any:
    """What pytest-benchmark has after it."""
    benchmark: Any = SimpleNamespace(
        stats=SimpleNamespace(), extra_info={}, pedantic=lambda step: None
    )
    pytest_benchmark.store_result(benchmark, measurement)
    return benchmark.stats


def test_a_duration_is_a_round_there(measured: Callable[..., Measurement]) -> None:
    """Each as it was timed: the medians of our rounds would hide what is slow in them."""
    samples = Samples(
        timer="perf_counter",
        durations_s=(0.1, 0.2, 0.6, 0.3, 0.4, 0.8),
        calls_per_duration=2,
        durations_per_round=3,
        block_s=(4.8,),
        block_calls=(12,),
        first_step_s=0.5,
        warmup_s=(),
        warmup_calls=0,
    )
    stats = carried(measured(samples=samples))
    assert list(stats.stats.data) == list(samples.durations_s)
    assert (stats.iterations, stats.stats.max) == (2, 0.8)
