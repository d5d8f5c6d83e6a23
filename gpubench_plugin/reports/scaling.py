"""Scaling table: benchmarks that differ only in the number of ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from gpubench_plugin.compare.scaling import EFFICIENCY, SPEED_UP, families, kind_of
from gpubench_plugin.core.format import percentage, significant
from gpubench_plugin.core.records import Measurement, confidence_bounds_of
from gpubench_plugin.reports.columns import metric_column, step, with_interval
from gpubench_plugin.reports.markup import Line
from gpubench_plugin.reports.names import short_names
from gpubench_plugin.reports.table import Column, column, table
from gpubench_plugin.reports.text import UNICODE, Glyphs, cut

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
    has_sizes = len({measurement.world_size for measurement in measurements}) > 1
    groups = families(measurements) if has_sizes else []
    if not groups:
        return []
    names = short_names(measurement.id for measurement in measurements).by_id
    titles = [cut(_title(group, names), width, glyphs.ellipsis) for group in groups]
    above = [title for group, title in zip(groups, titles, strict=True) for _ in group]
    columns = _columns([row for group in groups for row in group], glyphs)
    return [*table(columns, glyphs, total=width, nothing=glyphs.nothing, groups=above)]


def _columns(rows: Sequence[Measurement], glyphs: Glyphs) -> list[Column]:
    shares = (("speed-up", SPEED_UP, significant), ("efficiency", EFFICIENCY, percentage))
    return [
        column("  ranks", [m.world_size for m in rows], numeric=True),
        column("step", [step(m, glyphs) for m in rows], numeric=True),
        metric_column(rows, "throughput", glyphs),
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


def _title(group: Sequence[Measurement], names: Mapping[str, str]) -> str:
    """The name of the group, which has no world size, with the kind of scaling."""
    name = _WORLD_SIZE.sub("", names[group[0].id]).replace("-]", "]").removesuffix("[]")
    kind = kind_of(group)
    return f"{name} ({kind} scaling)" if kind else name
