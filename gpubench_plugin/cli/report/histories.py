"""Histories of pages and pictures, made from the segments of trends."""

from __future__ import annotations

from collections.abc import Mapping

from gpubench_plugin.baselines.trend import Point, TrendSegment
from gpubench_plugin.core.format import listed
from gpubench_plugin.reports.html.page import History, KnownRun
from gpubench_plugin.reports.verdicts import signed


def known_run(point: Point) -> KnownRun:
    """The run of a point."""
    return KnownRun(
        run_id=point.run_id,
        started=point.started,
        commit=point.commit or "",
        branch=point.branch or "",
    )


def history_of(
    segment: TrendSegment,
    metric: str,
    positions: Mapping[str, int],
    band: tuple[float, float] | None = None,
) -> History:
    """The segment as a history over the runs of a page, whose `positions` are by id."""
    points = segment.points
    return History(
        metric=metric,
        unit=points[-1].unit,
        runs=tuple(positions[point.run_id] for point in points),
        values=tuple(point.value for point in points),
        doubts={i: listed(point.doubts) for i, point in enumerate(points) if point.doubts},
        levels=tuple(
            (c.index, f"new level {signed(c.change)}".strip()) for c in segment.changes or ()
        ),
        band=band,
    )
