"""Columns of what was measured: step, throughput, memory, doubts and notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gpubench_plugin.environment import byte_size, significant
from gpubench_plugin.flags import doubtful_flags, other_flags
from gpubench_plugin.measure import FEWEST_TO_JUDGE, interval_ranks
from gpubench_plugin.records import Measurement, confidence_bounds_of
from gpubench_plugin.reports.table import Column, column, narrowed, width_of
from gpubench_plugin.reports.text import Glyphs, count, digits_for, percentage, seconds

_RATES: Final[Mapping[str, tuple[Callable[[float, int], str], str]]] = {
    "busbw_bytes_per_s": (lambda rate, digits: significant(rate / 1e9, digits), " GB/s busbw"),
    "samples_per_s": (count, " samples/s"),
    "tokens_per_s": (count, " tokens/s"),
    "bytes_per_s": (byte_size, "/s"),
}
"""Metrics of throughput, the most telling first, with how one is written and the rest of its unit.
None is derived from the step's time."""
_TITLES: Final = ("samples/s", "tokens/s", "GB/s busbw")
"""Units that do not depend on the number before them: they may stand in the title."""

_FOLDED: Final = ("notes", "doubts")
"""These fold into another place, so they go before any name is shortened."""
_LEFT_OUT: Final = ("tflops", "mfu", "memory", "throughput")
"""These are lost to the table, so they go, in this order, before names become too short."""
_LEAST_FOR_NAMES: Final = 30


def fitting(
    measurements: Sequence[Measurement], total: int, for_names: int, glyphs: Glyphs
) -> dict[str, Column]:
    """Non-empty columns in order that fit into `total`, by name.

    `for_names` is what the column with the benchmarks' names would like to have of it. Where the
    outcome has no room, it stands in the step's column, which is empty where nothing was
    measured; doubts, notes and numbers without room are missing from the result.
    """
    columns = _all(measurements, glyphs)
    if width_of(columns.values()) > total - for_names:
        columns = _with_outcome_folded(columns, measurements)
    columns = narrowed(columns, _FOLDED, total - for_names)
    name_width = min(for_names, max(_LEAST_FOR_NAMES, total // 3))
    return narrowed(columns, _LEFT_OUT, total - name_width)


def _all(measurements: Sequence[Measurement], glyphs: Glyphs) -> dict[str, Column]:
    columns = {
        "outcome": Column(title="outcome", cells=[m.outcome for m in measurements]),
        "step": _numbers("step", [step(m, glyphs) for m in measurements]),
        "throughput": throughputs(measurements, glyphs),
        "tflops": _metric(measurements, "TFLOP/s", "tflops", lambda flops: significant(flops, 3)),
        "mfu": _metric(measurements, "MFU", "mfu", lambda share: percentage(share, 3)),
        "memory": _metric(measurements, "memory", "peak_memory_bytes", byte_size),
        "doubts": _flags("doubts", [doubtful_flags(m.flags) for m in measurements]),
        "notes": _flags("notes", [other_flags(m.flags) for m in measurements]),
    }
    return {name: column for name, column in columns.items() if any(column.cells)}


def _with_outcome_folded(
    columns: Mapping[str, Column], measurements: Sequence[Measurement]
) -> dict[str, Column]:
    steps = columns["step"].cells if "step" in columns else [""] * len(measurements)
    cells = [
        step_text or measurement.outcome
        for step_text, measurement in zip(steps, measurements, strict=True)
    ]
    other_columns = {name: c for name, c in columns.items() if name not in {"outcome", "step"}}
    return {"step": _numbers("step", cells), **other_columns}


def throughputs(measurements: Sequence[Measurement], glyphs: Glyphs) -> Column:
    """Throughput column; a common unit moves into the title."""
    cells = [_throughput(m, glyphs) for m in measurements]
    units = {unit.strip() for _, unit, _ in cells if unit}
    if len(units) == 1 and (common_unit := units.pop()) in _TITLES:
        return _numbers(
            common_unit, [f"{text}{half_width_text}" for text, _, half_width_text in cells]
        )
    return _numbers("throughput", ["".join(parts) for parts in cells])


def _metric(
    measurements: Sequence[Measurement], title: str, name: str, show: Callable[[float], str]
) -> Column:
    metrics = (m.metrics.get(name) for m in measurements)
    return _numbers(title, ["" if metric is None else show(metric.value) for metric in metrics])


def _numbers(title: str, cells: Sequence[str]) -> Column:
    return Column(title=title, cells=cells, numeric=True)


def _flags(title: str, flags: Sequence[Sequence[str]]) -> Column:
    return column(title, [", ".join(names) for names in flags])


def step(measurement: Measurement, glyphs: Glyphs) -> str:
    """Median step with relative half-width: ``18.42 ms ±0.54%``.

    One in doubt has a mark and no interval, ``≈ 18 ms``. One that rests on too few samples for an
    interval says on how many, ``684 ms n=1``, in doubt or not; so does an interval of so few rounds
    that they are taken as independent, ``24.2 ms ±0.09% n=12``.
    """
    median = measurement.metrics.get("step_time_s")
    if median is None:
        return ""
    width = half_width(measurement, "step_time_s")
    text = seconds(median.value, glyphs, digits_for(width))
    rounds = measurement.metrics.get("rounds")
    size = "" if rounds is None else f" n={rounds.value:.0f}"
    if rounds is None or interval_ranks(int(rounds.value), measurement.confidence) is None:
        has_few_rounds = True
    else:
        has_few_rounds = (
            width is not None and rounds.value < FEWEST_TO_JUDGE and measurement.launches == 1
        )
    if doubtful_flags(measurement.flags):
        return f"{glyphs.doubtful} {text}{size if has_few_rounds and width is None else ''}"
    return f"{text}{_plus_minus(width, glyphs)}{size if has_few_rounds else ''}"


def half_width(measurement: Measurement, name: str) -> float | None:
    """Relative half-width of a metric's interval, if it has one."""
    value = measurement.metrics.get(name)
    low, high = map(measurement.metrics.get, confidence_bounds_of(name))
    if value is None or low is None or high is None or value.value == 0:
        return None
    return (high.value - low.value) / 2 / value.value


def _throughput(measurement: Measurement, glyphs: Glyphs) -> tuple[str, str, str]:
    """Number, unit and half-width; doubtful ones without the half-width."""
    name = next((name for name in _RATES if name in measurement.metrics), None)
    if name is None:
        return "", "", ""
    show, unit = _RATES[name]
    width = half_width(measurement, name)
    text = show(measurement.metrics[name].value, digits_for(width))
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
