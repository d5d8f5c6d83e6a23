"""Scaling table: benchmarks that differ only in the number of ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gpubench_plugin.compare import EFFICIENCY, SPEED_UP, families, kind_of
from gpubench_plugin.environment import percentage, significant
from gpubench_plugin.records import Measurement, confidence_bounds_of
from gpubench_plugin.reports.columns import step, throughputs, with_interval
from gpubench_plugin.reports.markup import Line
from gpubench_plugin.reports.table import Column, column, table
from gpubench_plugin.reports.text import UNICODE, Glyphs, cut, printable

_WORLD_SIZE: Final = re.compile(r"(?<=[\[-])ws\d+(?:-|(?=\]))")
"""World size in a node id."""


def scaling_lines(
    measurements: Sequence[Measurement], width: int, glyphs: Glyphs = UNICODE
) -> list[Line]:
    """Speed-up and efficiency of each benchmark measured on several world sizes.

    Both are metrics, see :mod:`gpubench_plugin.compare.scaling`: a benchmark without a work count
    has neither, nor has a doubtful one. An efficiency above 100% beyond its interval is marked
    ``superlinear``.
    """
    groups = families(measurements)
    if not groups:
        return []
    titles = [cut(title, width, glyphs.ellipsis) for title in _titles(groups)]
    above = [title for group, title in zip(groups, titles, strict=True) for _ in group]
    columns = _columns([row for group in groups for row in group], glyphs)
    return [*table(columns, glyphs, total=width, nothing=glyphs.nothing, groups=above)]


def _columns(rows: Sequence[Measurement], glyphs: Glyphs) -> list[Column]:
    shares = (("speed-up", SPEED_UP, significant), ("efficiency", EFFICIENCY, percentage))
    return [
        column("  ranks", [m.world_size for m in rows], numeric=True),
        column("step", [step(m, glyphs) for m in rows], numeric=True),
        throughputs(rows, glyphs),
        *(
            column(title, [with_interval(m, name, show, glyphs) for m in rows], numeric=True)
            for title, name, show in shares
        ),
        column("", [_mark(m) for m in rows]),
    ]


def _mark(measurement: Measurement) -> str:
    """``superlinear`` for an efficiency above 100% beyond its interval and rounding."""
    efficiency = measurement.metrics.get(EFFICIENCY)
    if efficiency is None:
        return ""
    lower_bound = measurement.metrics.get(confidence_bounds_of(EFFICIENCY)[0], efficiency)
    return "superlinear" if round(lower_bound.value, 2) > 1 else ""


def _titles(groups: Sequence[Sequence[Measurement]]) -> list[str]:
    """Group names with the kind of scaling, and with the file where names are ambiguous."""
    names = [_name(group[0].id.partition("::")[2]) for group in groups]
    titles = []
    for name, group in zip(names, groups, strict=True):
        kind = kind_of(group)
        title = printable(name if names.count(name) == 1 else _name(group[0].id))
        titles.append(f"{title} ({kind} scaling)" if kind else title)
    return titles


def _name(text: str) -> str:
    """Node id or its last part, without the world size."""
    return _WORLD_SIZE.sub("", text.removeprefix("test_")).replace("-]", "]").removesuffix("[]")
