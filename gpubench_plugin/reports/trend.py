"""The course of a metric over runs: a small picture, a table, and where its level changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpubench_plugin.environment import Cell, counted, csv_text, short_commit
from gpubench_plugin.reports.table import column, lines, wrapped
from gpubench_plugin.reports.text import Glyphs, printable, sparkline
from gpubench_plugin.reports.verdict_table import number, signed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpubench_plugin.compare.baselines import Course

_POINT = ("run_id", "started", "branch", "commit", "value")
_CSV = ("fingerprint", *_POINT, "unit", "change", "work")


def course_lines(
    benchmark: str, metric: str, courses: Sequence[Course], total: int, glyphs: Glyphs
) -> Iterator[str]:
    """All `courses` of `benchmark`, in `total` columns."""
    yield printable(benchmark)
    for position, course in enumerate(courses, start=1):
        which = f", machine, clock, configuration or work {position} of {len(courses)}"
        part = f"{which} ({_place(course)})" if len(courses) > 1 else ""
        yield from wrapped(f"{metric}: {counted(len(course.points), 'run')}{part}", total)
        yield ""
        yield from _picture(course, total, glyphs)
        yield ""
        yield from _table(course, total, glyphs)
        yield ""
        yield from _changes(course, total, glyphs)
        if position < len(courses):
            yield ""


def courses_as_json(benchmark: str, metric: str, courses: Sequence[Course]) -> dict[str, Any]:
    """The same in JSON's own types; `change` is a fraction, of the value."""
    return {
        "benchmark": benchmark,
        "metric": metric,
        "series": [
            {
                "fingerprint": course.fingerprint,
                "work": None if course.work is None else dict(course.work),
                "unit": course.points[-1].unit,
                "points": [
                    {name: getattr(point, name) for name in _POINT} for point in course.points
                ],
                "change_points": None
                if course.changes is None
                else [
                    {
                        "index": change.index,
                        "run_id": change.point.run_id,
                        "commit": change.point.commit,
                        "before": change.before,
                        "after": change.after,
                        "change": change.change,
                    }
                    for change in course.changes
                ],
            }
            for course in courses
        ],
    }


def courses_as_csv(courses: Sequence[Course]) -> str:
    """One row per run; `change` is filled where a new level begins, `work` is of the course."""
    return csv_text([_CSV, *(row for course in courses for row in _rows(course))])


def _rows(course: Course) -> Iterator[list[Cell]]:
    changes = {change.index: change.change for change in course.changes or ()}
    for index, point in enumerate(course.points):
        origin = (course.fingerprint, point.run_id, point.started, point.branch, point.commit)
        yield [
            *(printable(text or "") for text in origin),
            point.value,
            printable(point.unit),
            changes.get(index),
            printable(_amounts(course)),
        ]


def _place(course: Course) -> str:
    """What it is told apart by: ``1f0c93aa; samples=32 flops=4.2e+09``."""
    return "; ".join(filter(None, [course.fingerprint[:8], _amounts(course)]))


def _amounts(course: Course) -> str:
    """The work in a call; empty where there is none, or nobody knows."""
    return " ".join(f"{name}={amount:.6g}" for name, amount in (course.work or {}).items())


def _picture(course: Course, total: int, glyphs: Glyphs) -> Iterator[str]:
    values = [point.value for point in course.points]
    marks = {change.index for change in course.changes or ()}
    drawn = sparkline(values, glyphs, marks)
    for start in range(0, len(drawn), max(total - 2, 1)):
        yield f"  {drawn[start : start + max(total - 2, 1)]}"
    unit = course.points[-1].unit
    low, high = (number(one, unit, glyphs) for one in (min(values), max(values)))
    yield printable(f"  least {low}, greatest {high}")


def _table(course: Course, total: int, glyphs: Glyphs) -> list[str]:
    points = course.points
    marks = {c.index: f"new {signed(c.change)}".strip() for c in course.changes or ()}
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


def _changes(course: Course, total: int, glyphs: Glyphs) -> Iterator[str]:
    if course.changes == ():
        yield "no change of level was found"
    for change in course.changes or ():
        unit = change.point.unit
        before, after = (number(one, unit, glyphs) for one in (change.before, change.after))
        commit = f" (commit {short_commit(change.point.commit)})" if change.point.commit else ""
        size = signed(change.change)
        yield from wrapped(
            f"new level from {change.point.run_id}{commit} on: {before} {glyphs.to} {after}"
            f"{f', {size}' if size else ''}",
            total,
        )
