"""Runs, results and series for tests, with what does not matter filled in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpubench_plugin.compare.launch_values import LaunchValues
from gpubench_plugin.config.limits import Limit
from gpubench_plugin.core.records import Better, Metric, Outcome, Result, Run

UNITS: Mapping[str, tuple[str, Better]] = {
    "step_time_s": ("s", "lower"),
    "step_time_min_s": ("s", "lower"),
    "peak_memory_bytes": ("bytes", "lower"),
    "samples_per_s": ("samples/s", "higher"),
    "rounds": ("count", "none"),
}


def series(
    base: Iterable[float],
    head: Iterable[float],
    *,
    limit: str = "2%",
    metric: str = "step_time_s",
    unit: str | None = None,
    better: Better | None = None,
    name: str = "test_a",
) -> LaunchValues:
    known = UNITS.get(metric, ("s", "lower"))
    return LaunchValues(
        id=name,
        metric=metric,
        unit=known[0] if unit is None else unit,
        better=better or known[1],
        limit=Limit.parse(limit, "limit"),
        base=tuple(base),
        head=tuple(head),
    )


def result(
    name: str = "test_a",
    *,
    outcome: Outcome = "measured",
    reason: str = "",
    timer: str = "perf_counter_ns",
    launches: Iterable[Mapping[str, float]] = (),
    units: Mapping[str, str] = {},
    settings: Mapping[str, Any] = {},
    configuration: Mapping[str, Any] = {},
    limits: Mapping[str, str] = {},
    **metrics: float,
) -> Result:
    if outcome == "measured" and not metrics:
        metrics = {"step_time_s": 1.0, "step_time_min_s": 1.0}
    return Result(
        id=name,
        outcome=outcome,
        reason=reason,
        timer=timer,
        metrics={
            key: Metric(
                name=key,
                value=value,
                unit=units.get(key, UNITS.get(key, ("1", "lower"))[0]),
                better=UNITS.get(key, ("1", "lower"))[1],
            )
            for key, value in metrics.items()
        },
        launches=tuple(launches) or ((metrics,) if outcome == "measured" else ()),
        settings=settings,
        configuration=configuration,
        limits=limits,
    )


def run(label: str, *results: Result, **fields: Any) -> Run:
    return Run(label=label, results={one.id: one for one in results}, **fields)


def timed(seconds: float, name: str = "test_a") -> Result:
    return result(name, step_time_min_s=seconds)
