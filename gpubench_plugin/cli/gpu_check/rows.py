"""Rows of the record from measured benchmarks, and their goals."""

from __future__ import annotations

from typing import Final

from gpubench_plugin.cli.gpu_check.bands import BANDS, GOALS
from gpubench_plugin.cli.gpu_check.record import Row
from gpubench_plugin.cli.gpu_check.stage import StageRun
from gpubench_plugin.core.records import Measurement, confidence_bounds_of

_RATES: Final = {
    "tokens_per_s": ("tokens/s", 1.0),
    "samples_per_s": ("samples/s", 1.0),
    "tflops": ("FLOP/s", 1e12),
    "bytes_per_s": ("bytes/s", 1.0),
}
"""Rates in the order of preference: metric, unit, factor."""


def row_of(benchmark: Measurement, *, bare_s: float | None = None) -> Row:
    """The numbers of a benchmark, and of the loop beside it."""
    values = {name: metric.value for name, metric in benchmark.metrics.items()}
    low, high = (values.get(name) for name in confidence_bounds_of("step_time_s"))
    test, precision = test_of(benchmark), precision_of(benchmark)
    rate = next((name for name in _RATES if name in values), None)
    unit, factor = _RATES[rate] if rate else ("", 1.0)
    bands = BANDS.get((test, precision), ())
    return Row(
        id=benchmark.id,
        precision=precision,
        outcome=benchmark.outcome,
        reason=benchmark.reason,
        step_time_s=values.get("step_time_s"),
        interval_s=None if low is None or high is None else (low, high),
        rate=values[rate] * factor if rate else None,
        rate_unit=unit,
        mfu=values.get("mfu"),
        peak_memory_bytes=values.get("peak_memory_bytes"),
        flags=benchmark.flags,
        bare_s=bare_s,
        bands=tuple(band for band in bands if band.unit == unit),
    )


def test_of(benchmark: Measurement) -> str:
    """Name of the test function."""
    return benchmark.name.partition("[")[0]


def precision_of(benchmark: Measurement) -> str:
    """Name of the precision; empty without one."""
    return benchmark.params.get("precision", "")


def check_goals(run: StageRun, benchmark: Measurement, device_name: str) -> None:
    """Judge a benchmark by its goals; those of another device stay unproven."""
    case = benchmark.name.partition("[")[2].removesuffix("]")
    for goal in GOALS:
        if (goal.test, goal.case) != (test_of(benchmark), case):
            continue
        if goal.device != device_name:
            run.unproven(f"{goal.test}[{goal.case}]: the goal is one of {goal.device}")
            continue
        metric = benchmark.metrics.get(goal.metric)
        run.check(
            f"{benchmark.name}: {goal.metric}",
            None if metric is None else metric.value,
            goal.bound,
            goal.limit,
            goal.unit,
        )
