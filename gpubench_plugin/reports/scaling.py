"""How benchmarks that differ in nothing but the number of ranks scale, as lines of a table.

Nothing here writes; see :mod:`gpubench_plugin.reports.terminal`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpubench_plugin.reports.table import GAP, Column, step, throughputs
from gpubench_plugin.reports.text import UNICODE, cut, fill, percentage, printable, significant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpubench_plugin.records import Measurement
    from gpubench_plugin.reports.terminal import Line
    from gpubench_plugin.reports.text import Glyphs

_RATES: Final = ("samples_per_s", "tokens_per_s", "bytes_per_s")
"""Work that is summed over the ranks: the more ranks, the more of it is expected."""

_WORLD_SIZE: Final = re.compile(r"(?<=[\[-])ws\d+(?:-|(?=\]))")
"""The part of a name that says the number of ranks."""

_BOLD: Final = {"bold": True}


@dataclass(frozen=True, kw_only=True)
class _Scaled:
    """A benchmark on one number of ranks, beside the same on the smallest number measured."""

    measurement: Measurement
    speedup: float | None = None
    efficiency: float | None = None


def scaling_lines(
    measurements: Sequence[Measurement], width: int, glyphs: Glyphs = UNICODE
) -> list[Line]:
    """For each benchmark measured on two or more numbers of ranks: speed-up and efficiency.

    Speed-up is throughput over that of the smallest number of ranks; efficiency is speed-up over
    the growth of the number of ranks, flagged ``superlinear`` above 100 %. A benchmark that does
    not count its work has neither. No line where nothing was measured on two numbers of ranks.
    """
    groups = [_scaled(group) for group in _groups(measurements)]
    columns = _columns([row for group in groups for row in group], glyphs)
    if not groups:
        return []
    lines: list[Line] = [((_row((c.title for c in columns), columns, width, glyphs), _BOLD),)]
    rows = zip(*(column.cells for column in columns), strict=True)
    for title, group in zip(_titles(groups), groups, strict=True):
        lines.append(((cut(title, width, glyphs.ellipsis), {}),))
        lines += (((_row(next(rows), columns, width, glyphs), {}),) for _ in group)
    return lines


def _groups(measurements: Iterable[Measurement]) -> Iterator[list[Measurement]]:
    """Those measured on several numbers of ranks, the smallest first."""
    groups: dict[object, list[Measurement]] = {}
    for measurement in measurements:
        if measurement.outcome == "measured":
            others = {k: v for k, v in measurement.params.items() if k != "world_size"}
            key = (measurement.id.partition("[")[0], *sorted(others.items()))
            groups.setdefault(key, []).append(measurement)
    for group in groups.values():
        if len({measurement.world_size for measurement in group}) > 1:
            yield sorted(group, key=lambda measurement: measurement.world_size)


def _scaled(group: Sequence[Measurement]) -> list[_Scaled]:
    rate = next((name for name in _RATES if all(name in m.metrics for m in group)), None)
    if rate is None:
        return [_Scaled(measurement=measurement) for measurement in group]
    first, rows = group[0], []
    for measurement in group:
        speedup = measurement.metrics[rate].value / first.metrics[rate].value
        efficiency = speedup * first.world_size / measurement.world_size
        rows.append(_Scaled(measurement=measurement, speedup=speedup, efficiency=efficiency))
    return rows


def _columns(rows: Sequence[_Scaled], glyphs: Glyphs) -> list[Column]:
    measurements = [row.measurement for row in rows]
    ranks = Column(title="  ranks", cells=[str(m.world_size) for m in measurements])
    speedup = Column(
        title="speed-up",
        cells=[significant(row.speedup, 3) if row.speedup else "" for row in rows],
    )
    efficiency = Column(
        title="efficiency",
        cells=[percentage(row.efficiency, 3) if row.efficiency else "" for row in rows],
    )
    flags = Column(title="", cells=[_flag(row) for row in rows], numeric=False)
    steps = Column(title="step", cells=[step(m, glyphs) for m in measurements])
    columns = (ranks, steps, throughputs(measurements, glyphs), speedup, efficiency, flags)
    return [column for column in columns if any(column.cells)]


def _flag(row: _Scaled) -> str:
    """Above 100 % as it is shown: what rounding hides is no wonder."""
    return "superlinear" if row.efficiency and round(row.efficiency, 2) > 1 else ""


def _row(cells: Iterable[str], columns: Sequence[Column], width: int, glyphs: Glyphs) -> str:
    filled = (
        fill(cell or glyphs.nothing * column.numeric, column.width, right=column.numeric)
        for cell, column in zip(cells, columns, strict=True)
    )
    return cut(GAP.join(filled).rstrip(), width, glyphs.ellipsis)


def _titles(groups: Sequence[Sequence[_Scaled]]) -> list[str]:
    """The name of each group, with its file where another file has the same name."""
    names = [_name(group[0].measurement.id.partition("::")[2]) for group in groups]
    return [
        _title(group[0], name if names.count(name) == 1 else _name(group[0].measurement.id))
        for name, group in zip(names, groups, strict=True)
    ]


def _name(text: str) -> str:
    """A node id, or its end, without the number of ranks."""
    return _WORLD_SIZE.sub("", text.removeprefix("test_")).replace("-]", "]").removesuffix("[]")


def _title(row: _Scaled, named: str) -> str:
    """The name, and what stays the same as the number of ranks grows."""
    kind = row.measurement.configuration.get("distributed", {}).get("scaling")
    return printable(named) + (f" ({kind} scaling)" if kind and row.speedup else "")
