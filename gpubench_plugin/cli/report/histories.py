"""Histories of pages and pictures, made from the segments of trends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpubench_plugin.baselines.trend import (
    HistorySource,
    Point,
    TrendSegment,
    benchmark_history,
)
from gpubench_plugin.cli.explain.run import prediction
from gpubench_plugin.core.format import listed
from gpubench_plugin.core.records import MINIMUM, STEP_TIME, Run
from gpubench_plugin.core.verdicts import MAIN, Verdict
from gpubench_plugin.reports.html.page import History, KnownRun, Row
from gpubench_plugin.reports.verdicts import signed


def histories(
    source: HistorySource,
    rows: Sequence[Row],
    judged: Mapping[str, Verdict | None],
    *,
    head: Run | None,
    limit: int,
) -> tuple[list[Row], tuple[KnownRun, ...]]:
    """The `rows` with their histories, and the runs of these, oldest first.

    They are main's up to the `head`, with its own. Of each benchmark those runs count that are
    comparable with its latest. One that was `judged` by its history has the prediction interval.
    """
    branch = MAIN if source.index.runs(branch=MAIN, limit=1) else None
    segments: dict[str, tuple[str, TrendSegment]] = {}
    for row in rows:
        # Of launches that confirm a verdict a run has no number: its minimum in common is drawn.
        metric = None if row.metric == MINIMUM else row.metric or STEP_TIME
        history = benchmark_history(source, row.id, metric, branch=branch, limit=limit, head=head)
        if history is not None:
            segments[row.id] = history.metric, history.segments[-1]
    points = (point for _, segment in segments.values() for point in segment.points)
    known = {(point.started, point.run_id): known_run(point) for point in points}
    runs = tuple(known[key] for key in sorted(known))
    positions = {run.run_id: position for position, run in enumerate(runs)}
    drawn: dict[str, History] = {}
    for name, (metric, segment) in segments.items():
        band = prediction(verdict) if (verdict := judged[name]) else None
        drawn[name] = history_of(segment, metric, positions, band)
    return [replace(row, history=drawn.get(row.id)) for row in rows], runs


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
