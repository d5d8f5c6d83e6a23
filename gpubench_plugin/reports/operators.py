"""Operators of profiled benchmarks: where a step's time goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.core.format import duration, percentage
from gpubench_plugin.reports.markup import BOLD
from gpubench_plugin.reports.names import screen_names
from gpubench_plugin.reports.table import GAP, Column, column, table, width_of
from gpubench_plugin.reports.text import UNICODE, Glyphs, cut, printable, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.core.records import Json, Measurement
    from gpubench_plugin.reports.markup import Line

_SHOWN: Final = 10  # operators on the terminal; the record has more


def operator_lines(
    measurements: Sequence[Measurement], width: int, glyphs: Glyphs = UNICODE
) -> list[Line]:
    """The operators of each profiled benchmark with the most time of their own, per step."""
    lines: list[Line] = []
    names = screen_names((measurement.id for measurement in measurements), width, glyphs)
    for measurement in measurements:
        if operators := measurement.correctness.get("operators"):
            title = f"{names[measurement.id]}: {_heading(measurement, operators)}"
            lines.append(((cut(title, width, glyphs.ellipsis), BOLD),))
            lines += _table(operators["top"][:_SHOWN], width, glyphs)
    return lines


def _heading(measurement: Measurement, operators: Json) -> str:
    place = {"device": "device time", "cpu": "CPU time"}[operators["time_of"]]
    shown = min(_SHOWN, len(operators["top"]))
    step = "call of each variant" if measurement.variants else "step"
    return f"{shown} of {operators['operators']} operators by own {place}, per {step}"


def _table(rows: Sequence[Json], width: int, glyphs: Glyphs) -> list[Line]:
    def time(value: Any) -> str:
        return duration(value, micro=glyphs.micro)

    numbers = [
        column("calls", [f"{row['calls']:.3g}" for row in rows], numeric=True),
        column("self", [time(row["self_s"]) for row in rows], numeric=True),
        column("total", [time(row["total_s"]) for row in rows], numeric=True),
        column("share", [percentage(row["share"]) for row in rows], numeric=True),
    ]
    title = f"{GAP}operator"
    room = max(width - width_of(numbers), len(title)) - len(GAP)
    names = shorten([printable(row["name"]) for row in rows], room, glyphs.ellipsis)
    operators = Column(title=title, cells=[f"{GAP}{name}" for name in names])
    return [*table([operators, *numbers], glyphs)]
