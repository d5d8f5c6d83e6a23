"""Columns of measurements: step, throughput, FLOP/s, memory, doubts, notes, and any metric."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpubench_plugin.core.format import (
    byte_size,
    change_percentage,
    count,
    decimal_rate,
    duration,
    percentage,
    quantity,
    ratio,
)
from gpubench_plugin.core.quality_flags import doubtful_flags, other_flags
from gpubench_plugin.core.records import STEP_TIME, Measurement, Result, confidence_bounds_of
from gpubench_plugin.measure.interval import FEWEST_TO_JUDGE, interval_ranks
from gpubench_plugin.measure.paired_turns import variant_metrics
from gpubench_plugin.reports.table import Column, column
from gpubench_plugin.reports.text import digits_for
from gpubench_plugin.reports.verdicts import kind_text


@dataclass(frozen=True, kw_only=True)
class MetricColumn:
    """Column of the first of `metrics` that a benchmark has.

    Each metric has a formatter of its value with so many digits. A unit that all cells share is the
    title if `is_titled_by_unit`; a rate with an interval has that, or a mark if it is in doubt.
    """

    title: str
    metrics: Mapping[str, Callable[[float, int], str]]
    is_titled_by_unit: bool = False
    has_interval: bool = False


METRIC_COLUMNS: Final[Mapping[str, MetricColumn]] = {
    "throughput": MetricColumn(
        title="throughput",
        metrics={
            "busbw_bytes_per_s": lambda rate, digits: f"{decimal_rate(rate, 'B/s', digits)} busbw",
            "samples_per_s": lambda rate, digits: f"{count(rate, digits)} samples/s",
            "tokens_per_s": lambda rate, digits: f"{count(rate, digits)} tokens/s",
            "bytes_per_s": lambda rate, digits: decimal_rate(rate, "B/s", digits),
        },
        is_titled_by_unit=True,
        has_interval=True,
    ),
    "flops": MetricColumn(
        title="FLOP/s",
        metrics={"tflops": lambda tflops, digits: decimal_rate(tflops * 1e12, "FLOP/s", digits)},
        is_titled_by_unit=True,
    ),
    "mfu": MetricColumn(title="MFU", metrics={"mfu": percentage}),
    "memory": MetricColumn(
        title="memory", metrics={"peak_memory_bytes": lambda size, _: byte_size(size)}
    ),
}
# Metrics by the column that shows the first of them that there is.
METRIC_OF: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("step", "relative"), (STEP_TIME,)),
    **{name: tuple(each.metrics) for name, each in METRIC_COLUMNS.items()},
}


def named_columns(measurements: Sequence[Measurement], groups: Sequence[str]) -> dict[str, Column]:
    """The columns that have a name of their own, by it, in the order of the table."""
    return {
        "step": column("step", [step(m) for m in measurements], numeric=True),
        "relative": _relative(measurements, groups),
        **{name: metric_column(measurements, name) for name in METRIC_COLUMNS},
        "outcome": Column(title="outcome", cells=[kind_text(m.outcome) for m in measurements]),
        "doubts": column("doubts", [", ".join(doubtful_flags(m.flags)) for m in measurements]),
        "notes": column("notes", [", ".join(other_flags(m.flags)) for m in measurements]),
    }


def metric_column(measurements: Sequence[Measurement], name: str) -> Column:
    """A column of :data:`METRIC_COLUMNS`."""
    cells = [_cell(m, METRIC_COLUMNS[name]) for m in measurements]
    units = {unit for _, unit, _ in cells if unit}
    if METRIC_COLUMNS[name].is_titled_by_unit and len(units) == 1:
        return column(
            units.pop(), [f"{text}{interval}" for text, _, interval in cells], numeric=True
        )
    return column(METRIC_COLUMNS[name].title, [_joined(cell) for cell in cells], numeric=True)


def throughput(measurement: Measurement) -> str:
    """Throughput with its unit and relative half-width: ``434 samples/s ±0.5%``."""
    return _joined(_cell(measurement, METRIC_COLUMNS["throughput"]))


def _cell(measurement: Measurement, spec: MetricColumn) -> tuple[str, str, str]:
    """Number, unit and half-width; doubtful ones without the half-width."""
    name = next((name for name in spec.metrics if name in measurement.metrics), None)
    if name is None:
        return "", "", ""
    is_doubtful = spec.has_interval and bool(doubtful_flags(measurement.flags))
    width = half_width(measurement, name) if spec.has_interval and not is_doubtful else None
    text = spec.metrics[name](measurement.metrics[name].value, digits_for(width))
    number, _, unit = text.partition(" ")
    return "≈ " * is_doubtful + number, unit, _plus_minus(width)


def _joined(cell: tuple[str, str, str]) -> str:
    number, unit, interval = cell
    return f"{number} {unit}{interval}" if unit else f"{number}{interval}"


def metric_text(measurement: Measurement, name: str) -> str:
    """A metric in the unit that fits; empty where there is none."""
    metric = measurement.metrics.get(name)
    if metric is None:
        return ""
    if metric.unit in {"1", "count"} and metric.value.is_integer():
        return f"{metric.value + 0.0:.15g}"  # the sum has no negative zero
    return quantity(metric.value, metric.unit)


def own_metrics(measurements: Iterable[Measurement]) -> list[str]:
    """Names of metrics that tests and plugins have added, in the order of the measurements."""
    from gpubench_plugin.compare.scaling import SCALING_METRICS
    from gpubench_plugin.measure.metrics._all import is_built_in

    names: dict[str, None] = {}
    for measurement in measurements:
        compared = variant_metrics(measurement.variants) if measurement.variants else set()
        bounds = {bound for name in compared for bound in confidence_bounds_of(name)}
        names |= dict.fromkeys(
            name for name in measurement.metrics if name not in compared | bounds
        )
    return [name for name in names if name not in SCALING_METRICS and not is_built_in(name)]


def _relative(measurements: Sequence[Measurement], groups: Sequence[str]) -> Column:
    """Step time over that of the fastest of the group: ``1.83x``; one in doubt is no measure."""
    times = [m.metrics[STEP_TIME].value if STEP_TIME in m.metrics else None for m in measurements]
    doubts = [bool(doubtful_flags(m.flags)) for m in measurements]
    fastest: dict[str, float] = {}
    for time, group, is_doubtful in zip(times, groups, doubts, strict=True):
        if time is not None and not is_doubtful:
            fastest[group] = min(time, fastest.get(group, time))
    cells = [
        "≈ " * is_doubtful + ratio(time / fastest[group], 1 if is_doubtful else 3)
        if time is not None and groups.count(group) > 1 and fastest.get(group)
        else ""
        for time, group, is_doubtful in zip(times, groups, doubts, strict=True)
    ]
    return column("vs fastest", cells, numeric=True)


def step(measurement: Measurement) -> str:
    """Median step with relative half-width: ``18.42 ms ±0.54%``.

    A doubtful one has a mark and no interval, ``≈ 18.4 ms``. Of too few rounds for an interval
    their number and range are shown, ``684 ms [661 ms, 702 ms] n=3``; the number also beside an
    interval of so few rounds that they are taken as independent, ``24.2 ms ±0.09% n=12``.
    """
    median = measurement.metrics.get(STEP_TIME)
    if median is None:
        return ""
    mark = "≈ " * bool(doubtful_flags(measurement.flags))
    width = None if mark else half_width(measurement, STEP_TIME)
    rounds = int(measurement.metrics["rounds"].value) if "rounds" in measurement.metrics else None
    if rounds is not None and interval_ranks(rounds, measurement.confidence) is None:
        return f"{mark}{_of_few(measurement, median.value)} n={rounds}"
    text = duration(median.value, digits_for(width))
    is_few = rounds is not None and rounds < FEWEST_TO_JUDGE and measurement.launches == 1
    return f"{mark}{text}{_plus_minus(width)}{f' n={rounds}' if is_few and width else ''}"


def _of_few(measurement: Measurement, median_s: float) -> str:
    """Median and range of few rounds, with the digits that the range allows."""
    ends = [measurement.metrics.get(f"step_time_{end}_s") for end in ("min", "max")]
    low, high = (median_s if end is None else end.value for end in ends)
    digits = digits_for((high - low) / 2 / median_s if low < high else None)
    middle, *extremes = (duration(s, digits) for s in (median_s, low, high))
    return f"{middle} [{', '.join(extremes)}]" if low < high else middle


def half_width(measurement: Measurement, name: str) -> float | None:
    """Relative half-width of a metric's interval, if it has one."""
    value = measurement.metrics.get(name)
    low, high = map(measurement.metrics.get, confidence_bounds_of(name))
    if value is None or low is None or high is None or value.value == 0:
        return None
    return (high.value - low.value) / 2 / value.value


def with_interval(measurement: Measurement, name: str, show: Callable[[float, int], str]) -> str:
    """A metric with its half-width, rounded accordingly."""
    metric = measurement.metrics.get(name)
    if metric is None:
        return ""
    width = half_width(measurement, name)
    return f"{show(metric.value, digits_for(width))}{_plus_minus(width)}"


def _plus_minus(width: float | None) -> str:
    return "" if width is None else f" ±{percentage(width)}"


def result_line(measurement: Measurement, earlier: Result | None) -> str:
    """Step time, its change, and a mark: ``374.7 µs ±0.9%  +3.1% ✓``; empty without a step time.

    The change is that from the `earlier` result. A number in doubt has none, and one from a number
    in doubt is marked. The mark tells a number that can be trusted from one in doubt, or without an
    interval.
    """
    if not (text := step(measurement)):
        return ""
    is_doubtful = bool(doubtful_flags(measurement.flags))
    is_trusted = half_width(measurement, STEP_TIME) is not None and not is_doubtful
    before = earlier.metrics.get(STEP_TIME) if earlier else None
    if earlier and before and before.value > 0 and not is_doubtful:
        change = measurement.metrics[STEP_TIME].value / before.value - 1
        doubt = "≈" if doubtful_flags(earlier.flags) else ""
        text += f"  {doubt}{change_percentage(change, 1 if doubt else 2, with_sign=True)}"
    mark = "✓" if is_trusted else "?" * (not is_doubtful)
    return f"{text} {mark}".rstrip()
