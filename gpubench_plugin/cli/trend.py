"""Metric history: sparkline, table, and level changes."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gpubench_plugin.core.format import Cell, counted, csv_text, short_commit
from gpubench_plugin.reports.table import column, lines, wrapped
from gpubench_plugin.reports.text import Glyphs, printable, sparkline
from gpubench_plugin.reports.verdicts import number, signed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpubench_plugin.baselines.trend import BenchmarkHistory, TrendSegment

_POINT = ("run_id", "started", "branch", "commit", "value")
_CSV = ("benchmark", "metric", "fingerprint", *_POINT, "unit", "change", "work")


def history_lines(
    histories: Sequence[BenchmarkHistory], total: int, glyphs: Glyphs
) -> Iterator[str]:
    """Lines for all series of the `histories`, at most `total` columns wide."""
    for place, history in enumerate(histories):
        if place:
            yield ""
        yield printable(history.benchmark)
        segments = history.segments
        for position, segment in enumerate(segments, start=1):
            if position > 1:
                yield ""
            heading = f"{history.metric}: {counted(len(segment.points), 'run')}"
            if len(segments) > 1:
                heading += f", series {position} of {len(segments)} ({_series_label(segment)})"
            yield from wrapped(heading, total)
            for part in (_plot, _table, _changes):
                yield ""
                yield from part(segment, total, glyphs)


def history_json(histories: Sequence[BenchmarkHistory]) -> dict[str, Any]:
    """The histories as JSON; `change` is a fraction of the value."""
    documents = [asdict(history) for history in histories]
    for document, history in zip(documents, histories, strict=True):
        for series, segment in zip(document["segments"], history.segments, strict=True):
            for shown, change in zip(series["changes"] or (), segment.changes or (), strict=True):
                shown["change"] = change.change
    return {"histories": documents}


def history_csv(histories: Sequence[BenchmarkHistory]) -> str:
    """One row per run; `change` is set where a new level starts, `work` is per series."""
    rows = (
        [_cell(cell) for cell in (history.benchmark, history.metric, *row)]
        for history in histories
        for segment in history.segments
        for row in _rows(segment)
    )
    return csv_text([_CSV, *rows])


def _cell(cell: Cell) -> Cell:
    return printable(cell) if isinstance(cell, str) else cell


def _rows(segment: TrendSegment) -> Iterator[tuple[Cell, ...]]:
    changes = {change.index: change.change for change in segment.changes or ()}
    for index, point in enumerate(segment.points):
        values = (getattr(point, name) for name in _POINT)
        yield segment.fingerprint, *values, point.unit, changes.get(index), _work_text(segment)


def _series_label(segment: TrendSegment) -> str:
    """Distinguishing keys of the series: ``fingerprint 1f0c93aa; samples=32 flops=4.2e+09``."""
    fingerprint = segment.fingerprint and f"fingerprint {segment.fingerprint[:8]}"
    return "; ".join(filter(None, [fingerprint, _work_text(segment)]))


def _work_text(segment: TrendSegment) -> str:
    """Work per call; empty if none or unknown."""
    return " ".join(f"{name}={amount:.6g}" for name, amount in (segment.work or {}).items())


def _plot(segment: TrendSegment, total: int, glyphs: Glyphs) -> Iterator[str]:
    values = [point.value for point in segment.points]
    marks = {change.index for change in segment.changes or ()}
    bars = sparkline(values, glyphs, marks)
    columns = max(total - 2, 1)
    for start in range(0, len(bars), columns):
        yield f"  {bars[start : start + columns]}"
    unit = segment.points[-1].unit
    low, high = (number(extreme, unit, glyphs) for extreme in (min(values), max(values)))
    yield f"  {printable(f'lowest {low}, highest {high}')}"


def _table(segment: TrendSegment, total: int, glyphs: Glyphs) -> list[str]:
    points = segment.points
    marks = {c.index: f"new {signed(c.change)}".strip() for c in segment.changes or ()}
    return lines(
        [
            column("run", [point.run_id for point in points]),
            column("value", [number(p.value, p.unit, glyphs) for p in points], numeric=True),
            column("commit", [short_commit(point.commit) for point in points]),
            column("branch", [point.branch or "" for point in points]),
            column("level", [marks.get(i, "") for i in range(len(points))]),
        ],
        total,
        glyphs,
    )


def _changes(segment: TrendSegment, total: int, glyphs: Glyphs) -> Iterator[str]:
    if segment.changes == ():
        yield "no level change detected"
    for change in segment.changes or ():
        unit = change.point.unit
        old_level, new_level = (
            number(level, unit, glyphs) for level in (change.old_level, change.new_level)
        )
        commit = f" (commit {short_commit(change.point.commit)})" if change.point.commit else ""
        size = signed(change.change)
        yield from wrapped(
            f"new level starting with {change.point.run_id}{commit}: {old_level} {glyphs.to} "
            f"{new_level}{size and f', {size}'}",
            total,
        )
