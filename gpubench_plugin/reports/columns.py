"""Columns of measurements: outcome, step, throughput, memory, doubts and notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gpubench_plugin.environment import byte_size, count, percentage, significant
from gpubench_plugin.measure import FEWEST_TO_JUDGE, interval_ranks
from gpubench_plugin.quality_flags import doubtful_flags, other_flags
from gpubench_plugin.records import Measurement, confidence_bounds_of
from gpubench_plugin.reports.table import Column, column, narrowed, width_of
from gpubench_plugin.reports.text import Glyphs, digits_for, seconds

_RATES: Final[Mapping[str, tuple[Callable[[float, int], str], str]]] = {
    "busbw_bytes_per_s": (lambda rate, digits: significant(rate / 1e9, digits), " GB/s busbw"),
    "samples_per_s": (count, " samples/s"),
    "tokens_per_s": (count, " tokens/s"),
    "bytes_per_s": (byte_size, "/s"),
}
"""Throughput metrics by preference, each with a formatter and the rest of its unit. None is derived
from the step time."""
_TITLES: Final = ("samples/s", "tokens/s", "GB/s busbw")
"""Units without a prefix that depends on the number: they can be in the title."""

_FOLDED: Final = ("notes", "doubts")
"""Columns moved below the table before any name is shortened."""
_LEFT_OUT: Final = ("tflops", "mfu", "memory", "throughput")
"""Columns left out, in this order, before names become too short."""
_MIN_NAME_WIDTH: Final = 30
"""Width to which names are shortened before a number is left out: a test's name and the end of its
parameters."""


def fitting_columns(
    measurements: Sequence[Measurement], total: int, for_names: int, glyphs: Glyphs
) -> dict[str, Column]:
    """Non-empty columns in order that fit into `total`, by name.

    `for_names` is the width of the names' column uncut. An outcome that does not fit moves to the
    step's column, which is empty where nothing was measured; doubts, notes and numbers that do not
    fit are left out.
    """
    columns = _all_columns(measurements, glyphs)
    if width_of(columns.values()) > total - for_names:
        columns = _with_outcome_folded(columns, measurements)
    columns = narrowed(columns, _FOLDED, total - for_names)
    name_width = min(for_names, max(_MIN_NAME_WIDTH, total // 3))
    return narrowed(columns, _LEFT_OUT, total - name_width)


def _all_columns(measurements: Sequence[Measurement], glyphs: Glyphs) -> dict[str, Column]:
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
        return _numbers(common_unit, [f"{text}{interval}" for text, _, interval in cells])
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
