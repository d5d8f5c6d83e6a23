"""Columns of measurements: step, throughput, FLOP/s, memory, doubts, notes, and any metric."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from gpubench_plugin.core.format import byte_size, count, decimal_rate, percentage, quantity, ratio
from gpubench_plugin.core.quality_flags import doubtful_flags, other_flags
from gpubench_plugin.core.records import Measurement, Outcome, confidence_bounds_of
from gpubench_plugin.measure.interval import FEWEST_TO_JUDGE, interval_ranks
from gpubench_plugin.measure.paired_turns import variant_metrics
from gpubench_plugin.reports.table import Column, column
from gpubench_plugin.reports.text import Glyphs, digits_for, printable, seconds

_RATES: Final[Mapping[str, tuple[Callable[[float, int], str], str]]] = {
    "busbw_bytes_per_s": (lambda rate, digits: decimal_rate(rate, "B/s", digits), " busbw"),
    "samples_per_s": (count, " samples/s"),
    "tokens_per_s": (count, " tokens/s"),
    "bytes_per_s": (lambda rate, digits: decimal_rate(rate, "B/s", digits), ""),
}
"""Throughput metrics by preference, each with a formatter and the rest of its unit. None is derived
from the step time."""
METRIC_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "step": ("step_time_s",),
    "relative": ("step_time_s",),
    "throughput": tuple(_RATES),
    "flops": ("tflops",),
    "mfu": ("mfu",),
    "memory": ("peak_memory_bytes",),
}
"""Metrics by the column that shows the first of them that there is."""


def named_columns(measurements: Sequence[Measurement], glyphs: Glyphs) -> dict[str, Column]:
    """The columns that have a name of their own, by it, in the order of the table."""
    return {
        "step": numbers("step", [step(m, glyphs) for m in measurements]),
        "throughput": throughputs(measurements, glyphs),
        "flops": _flops(measurements),
        "mfu": _metric(measurements, "MFU", "mfu", lambda share: percentage(share, 3)),
        "memory": _metric(measurements, "memory", "peak_memory_bytes", byte_size),
        "outcome": Column(title="outcome", cells=[outcome_text(m.outcome) for m in measurements]),
        "doubts": _flags("doubts", [doubtful_flags(m.flags) for m in measurements]),
        "notes": _flags("notes", [other_flags(m.flags) for m in measurements]),
    }


def outcome_text(outcome: Outcome) -> str:
    """The outcome in words: ``not measured``."""
    return outcome.replace("_", " ")


def metric_column(measurements: Sequence[Measurement], name: str, glyphs: Glyphs) -> Column:
    """Column of any metric, in the unit that fits."""
    texts = [metric_text(m, name, glyphs) for m in measurements]
    return column(printable(name), texts, numeric=True)


def metric_text(measurement: Measurement, name: str, glyphs: Glyphs) -> str:
    """A metric in the unit that fits; empty where there is none."""
    metric = measurement.metrics.get(name)
    if metric is None:
        return ""
    if metric.unit in {"1", "count"} and metric.value.is_integer():
        return f"{metric.value + 0.0:.15g}"  # the sum has no negative zero
    return quantity(metric.value, metric.unit, micro=glyphs.micro)


def own_metrics(measurements: Iterable[Measurement]) -> list[str]:
    """Names of metrics that tests and plugins have added, in the order of the measurements."""
    from gpubench_plugin.compare.scaling import SCALING_METRICS
    from gpubench_plugin.measure.metrics._all import is_built_in

    names: dict[str, None] = {}
    for measurement in measurements:
        compared = variant_metrics(measurement.variants)
        bounds = {bound for name in compared for bound in confidence_bounds_of(name)}
        names |= dict.fromkeys(
            name for name in measurement.metrics if name not in compared | bounds
        )
    return [name for name in names if name not in SCALING_METRICS and not is_built_in(name)]


def relative_column(
    measurements: Sequence[Measurement], groups: Sequence[str], glyphs: Glyphs
) -> Column:
    """Step time over that of the fastest of the group: ``1.83x``; one in doubt is no measure."""
    fastest: dict[str, float] = {}
    for measurement, group in zip(measurements, groups, strict=True):
        median = measurement.metrics.get("step_time_s")
        if median is not None and not doubtful_flags(measurement.flags):
            fastest[group] = min(median.value, fastest.get(group, median.value))
    cells = []
    for measurement, group in zip(measurements, groups, strict=True):
        median = measurement.metrics.get("step_time_s")
        is_alone = groups.count(group) == 1
        if median is None or is_alone or not fastest.get(group):
            cells.append("")
            continue
        mark = f"{glyphs.doubtful} " if doubtful_flags(measurement.flags) else ""
        cells.append(f"{mark}{ratio(median.value / fastest[group])}")
    return numbers("vs fastest", cells)


def throughputs(measurements: Sequence[Measurement], glyphs: Glyphs) -> Column:
    """Throughput column; a common unit moves into the title."""
    cells = [_throughput(m, glyphs) for m in measurements]
    units = {unit.strip() for _, unit, _ in cells if unit}
    if len(units) == 1:
        return numbers(units.pop(), [f"{text}{interval}" for text, _, interval in cells])
    return numbers("throughput", ["".join(parts) for parts in cells])


def numbers(title: str, cells: Sequence[str]) -> Column:
    """Column of numbers that need no escaping."""
    return Column(title=title, cells=cells, numeric=True)


def _flops(measurements: Sequence[Measurement]) -> Column:
    """FLOP/s with the prefix that fits, in the title if it is the same for all."""
    metrics = (m.metrics.get("tflops") for m in measurements)
    cells = [
        "" if metric is None else decimal_rate(metric.value * 1e12, "FLOP/s", 3)
        for metric in metrics
    ]
    units = {cell.rpartition(" ")[2] for cell in cells if cell}
    if len(units) == 1:
        return numbers(units.pop(), [cell.rpartition(" ")[0] for cell in cells])
    return numbers("FLOP/s", cells)


def _metric(
    measurements: Sequence[Measurement], title: str, name: str, show: Callable[[float], str]
) -> Column:
    metrics = (m.metrics.get(name) for m in measurements)
    return numbers(title, ["" if metric is None else show(metric.value) for metric in metrics])


def _flags(title: str, flags: Sequence[Sequence[str]]) -> Column:
    return column(title, [", ".join(names) for names in flags])


def step(measurement: Measurement, glyphs: Glyphs) -> str:
    """Median step with relative half-width: ``18.42 ms ±0.54%``.

    A doubtful one has a mark and no interval, ``≈ 18 ms``. Of too few rounds for an interval their
    number is shown, ``684 ms n=1``, doubtful or not; so it is for an interval of so few rounds that
    they are taken as independent, ``24.2 ms ±0.09% n=12``.
    """
    median = measurement.metrics.get("step_time_s")
    if median is None:
        return ""
    width = half_width(measurement, "step_time_s")
    text = seconds(median.value, glyphs, digits_for(width))
    rounds = measurement.metrics.get("rounds")
    size = ""
    if rounds is not None:
        number = int(rounds.value)
        is_few = width is not None and number < FEWEST_TO_JUDGE and measurement.launches == 1
        if is_few or interval_ranks(number, measurement.confidence) is None:
            size = f" n={number}"
    if doubtful_flags(measurement.flags):
        return f"{glyphs.doubtful} {text}{size if width is None else ''}"
    return f"{text}{_plus_minus(width, glyphs)}{size}"


def half_width(measurement: Measurement, name: str) -> float | None:
    """Relative half-width of a metric's interval, if it has one."""
    value = measurement.metrics.get(name)
    low, high = map(measurement.metrics.get, confidence_bounds_of(name))
    if value is None or low is None or high is None or value.value == 0:
        return None
    return (high.value - low.value) / 2 / value.value


def throughput(measurement: Measurement, glyphs: Glyphs) -> str:
    """Throughput with its unit and relative half-width: ``434 samples/s ±0.5%``."""
    return "".join(_throughput(measurement, glyphs))


def _throughput(measurement: Measurement, glyphs: Glyphs) -> tuple[str, str, str]:
    """Number, unit and half-width; doubtful ones without the half-width."""
    name = next((name for name in _RATES if name in measurement.metrics), None)
    if name is None:
        return "", "", ""
    show, rest = _RATES[name]
    width = half_width(measurement, name)
    text, space, prefixed = show(measurement.metrics[name].value, digits_for(width)).partition(" ")
    unit = f"{space}{prefixed}{rest}"
    if doubtful_flags(measurement.flags):
        return f"{glyphs.doubtful} {text}", unit, ""
    return text, unit, _plus_minus(width, glyphs)


def with_interval(
    measurement: Measurement, name: str, show: Callable[[float, int], str], glyphs: Glyphs
) -> str:
    """A metric with its half-width, rounded accordingly."""
    metric = measurement.metrics.get(name)
    if metric is None:
        return ""
    width = half_width(measurement, name)
    return f"{show(metric.value, digits_for(width))}{_plus_minus(width, glyphs)}"


def _plus_minus(width: float | None, glyphs: Glyphs) -> str:
    return "" if width is None else f" {glyphs.plus_minus}{percentage(width)}"
