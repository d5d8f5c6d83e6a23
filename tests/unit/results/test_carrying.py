"""What pytest-benchmark is given of a measurement, without a session of its own."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.records import Samples
from gpubench_plugin.results import pytest_benchmark

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.records import Measurement


def carried(measurement: Measurement) -> Any:
    """What pytest-benchmark has after it."""
    benchmark: Any = SimpleNamespace(
        stats=SimpleNamespace(), extra_info={}, pedantic=lambda step: None
    )
    pytest_benchmark.carry(benchmark, measurement)
    return benchmark.stats


def test_a_round_is_one_here_too(measured: Callable[..., Measurement]) -> None:
    """Of short calls many durations make a round: single ones would show the clock's noise."""
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
    assert list(stats.stats.data) == [0.2, 0.4]
    assert stats.iterations == 6
    alone = carried(measured(samples=replace(samples, durations_per_round=1)))
    assert list(alone.stats.data) == pytest.approx(list(samples.durations_s))
    assert alone.iterations == 2
