"""Devices, or precisions, side by side: benchmarks that differ in one parameter only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpubench_plugin.core.format import ratio
from gpubench_plugin.core.quality_flags import doubtful_flags
from gpubench_plugin.core.records import Measurement, Work, is_same_amount
from gpubench_plugin.reports.columns import numbers, step, throughput
from gpubench_plugin.reports.markup import PLAIN, Line
from gpubench_plugin.reports.names import ShortNames, name_room, short_names
from gpubench_plugin.reports.table import Column, table, width_of
from gpubench_plugin.reports.text import UNICODE, Glyphs, printable

# Parameters that are compared, with their names for people.
_PARAMETERS: Final[Mapping[str, str]] = {"torch_device": "device", "precision": "precision"}
# By which benchmarks of different work are compared.
_RATES: Final = ("samples_per_s", "tokens_per_s", "bytes_per_s")
_STEP: Final = "step_time_s"


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One benchmark by value of the parameter; `name` is without it."""

    name: str
    by_value: Mapping[str, Measurement]


def side_by_side_lines(
    measurements: Sequence[Measurement], width: int, glyphs: Glyphs = UNICODE
) -> list[Line]:
    """A table of devices, and one of precisions, where a benchmark was measured in several.

    Each row is a benchmark, each column a value, in the order of the session. Behind the numbers
    stands how many times as fast it is as with the first value: by the step time, or by throughput
    where the work of a call differs. It is marked where either side is in doubt.
    """
    lines: list[Line] = []
    names = short_names(measurement.id for measurement in measurements).by_id
    for parameter, title in _PARAMETERS.items():
        rows = _rows(measurements, parameter, names)
        if not rows:
            continue
        if lines:
            lines.append((("", PLAIN),))
        lines += _table(rows, title, width, glyphs)
    return lines


def _rows(
    measurements: Sequence[Measurement], parameter: str, names: Mapping[str, str]
) -> list[_Row]:
    """Benchmarks measured with at least two values of the `parameter`."""
    by_benchmark: dict[object, dict[str, Measurement]] = {}
    for measurement in measurements:
        if measurement.outcome == "measured" and parameter in measurement.params:
            others = {k: v for k, v in measurement.params.items() if k != parameter}
            benchmark = (measurement.id.partition("[")[0], *sorted(others.items()))
            value = measurement.params[parameter]
            by_benchmark.setdefault(benchmark, {})[value] = measurement
    return [
        _Row(name=_without(value, names[by_value[value].id]), by_value=by_value)
        for by_value in by_benchmark.values()
        if len(by_value) > 1
        for value in [next(iter(by_value))]
    ]


def _without(value: str, name: str) -> str:
    """The name without a `value` among its parameters."""
    test, bracket, variant = name.partition("[")
    token = re.compile(rf"(?:^|(?<=-)){re.escape(value)}(?:-|(?=\]))")
    remaining = token.sub("", variant, count=1).replace("-]", "]")
    return f"{test}{bracket}{remaining}".removesuffix("[]")


def _table(rows: Sequence[_Row], title: str, total: int, glyphs: Glyphs) -> Iterator[Line]:
    """Numbers and ratios by value; where they do not fit, ratios only."""
    names = ShortNames(by_id={row.name: row.name for row in rows})
    shown = names.fitting(name_room(total), glyphs).of(row.name for row in rows)
    first = Column(title=f"by {title}", cells=shown)
    show = throughput if any(_has_different_work(row.by_value) for row in rows) else step
    values = list(dict.fromkeys(value for row in rows for value in row.by_value))
    wide: list[Column] = []
    narrow: list[Column] = []
    for value in values:
        measured = [row.by_value.get(value) for row in rows]
        cells = [show(measurement, glyphs) if measurement else "" for measurement in measured]
        relative = [_relative(row, value, values[0], glyphs) for row in rows]
        wide += [numbers(printable(value), cells), numbers("", relative)]
        narrow.append(numbers(printable(value), relative))
    columns = wide if first.width + width_of(wide) <= total else narrow
    return table([first, *columns], glyphs, total=total, nothing=glyphs.nothing)


def _relative(row: _Row, value: str, reference: str, glyphs: Glyphs) -> str:
    """``2.31x``: how many times as fast as with the `reference`; empty without one of both."""
    measurement, base = row.by_value.get(value), row.by_value.get(reference)
    if measurement is None or base is None:
        return ""
    speed = _relative_speed(measurement, base)
    if speed is None:
        return ""
    is_doubtful = doubtful_flags(measurement.flags) or doubtful_flags(base.flags)
    doubt = glyphs.doubtful if is_doubtful and measurement is not base else ""
    return f"{doubt}{ratio(speed)}"


def _relative_speed(measurement: Measurement, base: Measurement) -> float | None:
    """Speed relative to `base`; None where nothing says it."""
    if _has_different_work({"base": base, "other": measurement}):
        names = [r for r in _RATES if r in measurement.metrics and r in base.metrics]
        if not names:
            return None
        return measurement.metrics[names[0]].value / base.metrics[names[0]].value
    if _STEP not in measurement.metrics or _STEP not in base.metrics:
        return None
    return base.metrics[_STEP].value / measurement.metrics[_STEP].value


def _has_different_work(by_value: Mapping[str, Measurement]) -> bool:
    """Whether calls of the benchmark do different amounts of work."""
    first, *others = (measurement.work or Work() for measurement in by_value.values())
    return any(
        not is_same_amount(getattr(first, name), getattr(other, name))
        for other in others
        for name in ("samples", "tokens", "bytes")
    )
