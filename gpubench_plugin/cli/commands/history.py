"""``gpubench history``: a benchmark's results over time, and its level changes."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, ClassVar, Final

from gpubench_plugin.cli.commands._places import (
    BENCHMARK,
    add_last,
    add_locations,
    echo_text,
    output_width,
    resolver_of,
    show,
    warn,
)
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.core.errors import UsageProblem, invalid_choice
from gpubench_plugin.core.format import Cell, counted, csv_text, listed, short_commit
from gpubench_plugin.core.records import STEP_TIME
from gpubench_plugin.core.verdicts import MAIN
from gpubench_plugin.reports.table import column, lines, wrapped
from gpubench_plugin.reports.text import printable, sparkline
from gpubench_plugin.reports.verdicts import number, signed

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from gpubench_plugin.baselines.trend import BenchmarkHistory, HistorySource, Point, TrendSegment

_MOST_SHOWN: Final = 8
"""Benchmarks shown one below the other on a terminal."""
_EXTRA_MISSING: Final = "level changes are not detected: pip install 'pytest-gpubench[history]'"


class History(Command):
    """Shows one metric of benchmarks over runs, with its level changes.

    Level changes are informative: they gate nothing, and the exit code is 0. Results of another
    machine, configuration, clock or amount of work per call are separate series.
    """

    help: ClassVar[str] = "show a benchmark's results over runs, and where its level changed"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Benchmark, metric, branch and number of runs."""
        parser.add_argument("benchmark", **BENCHMARK)
        parser.add_argument("--metric", help="default: the step time that it is judged by")
        parser.add_argument("--branch", help=f"default: {MAIN}, if it has runs; empty: any")
        add_last(parser, default=60)
        add_locations(parser, ("table", "csv", "json", "svg"))

    def run(self, options: argparse.Namespace) -> int:
        """Print the history of every benchmark that the name matches."""
        from gpubench_plugin.baselines.trend import HistorySource

        with resolver_of(options) as resolver:
            source = HistorySource(resolver.index)
            warn(resolver.index_notes)
            notes: list[str] = []
            branch = options.branch or None
            if options.branch is None and source.benchmarks(MAIN):
                branch = MAIN
            elif options.branch is None:
                notes.append(f"no run of branch {MAIN} is known; showing all branches")
            histories = [*_histories(source, options, branch)]
        if any(segment.changes is None for history in histories for segment in history.segments):
            notes.append(_EXTRA_MISSING)
        warn(notes)
        if options.format == "csv":
            echo_text(history_csv(histories))
        elif options.format == "svg":
            echo_text(_picture(histories))
        else:
            page = history_lines(histories, output_width())
            show(options, {"histories": [asdict(history) for history in histories]}, page)
        return ExitCode.OK


def _histories(
    source: HistorySource, options: argparse.Namespace, branch: str | None
) -> Iterator[BenchmarkHistory]:
    """The histories of the benchmarks that are named.

    Raises:
        UsageProblem: nothing is measured, no benchmark matches, too many for a terminal do, or none
            has the metric.
    """
    from gpubench_plugin.baselines.trend import benchmark_history

    def load(benchmark: str) -> BenchmarkHistory | None:
        return benchmark_history(
            source, benchmark, options.metric, branch=branch, limit=options.last
        )

    if (exact := load(options.benchmark)) is not None:  # also of runs older than the latest
        yield exact
        return
    names = _names(source, options, branch)
    histories = [history for name in names if (history := load(name)) is not None]
    if not histories:
        metrics = sorted({metric for name in names for metric in source.metrics(name, branch)})
        raise invalid_choice("--metric", options.metric or STEP_TIME, metrics)
    yield from histories


def _names(source: HistorySource, options: argparse.Namespace, branch: str | None) -> list[str]:
    """Benchmarks whose name matches; of too many for a terminal one is to be chosen."""
    from gpubench_plugin.cli.benchmark_names import selected_benchmarks

    scope = f"the runs on branch {branch} (--branch= selects any)" if branch else "the runs"
    measured = source.benchmarks(branch)
    if not measured:
        raise UsageProblem(
            f"no measured benchmark of {scope} in {resolver_of(options).results_dir} or its "
            "registry; measure with pytest, or give another --results-dir or --registry"
        )
    most = _MOST_SHOWN if options.format == "table" else math.inf
    return selected_benchmarks(options.benchmark, measured, scope, most=most)


_POINT = ("run_id", "started", "branch", "commit", "value")
_CSV = ("benchmark", "metric", "fingerprint", *_POINT, "unit", "change", "work", "doubts")


def history_lines(histories: Sequence[BenchmarkHistory], total: int) -> Iterator[str]:
    """Lines for all series of the `histories`, at most `total` columns wide."""
    for place, history in enumerate(histories):
        if place:
            yield ""
        yield printable(history.benchmark)
        segments = history.segments
        for position, segment in enumerate(segments, start=1):
            if position > 1:
                yield ""
            yield from wrapped(_heading(history, position), total)
            for part in (_plot, _table, _changes):
                yield ""
                yield from part(segment, total)


def _heading(history: BenchmarkHistory, position: int) -> str:
    segments = history.segments
    segment = segments[position - 1]
    heading = f"{history.metric}: {counted(len(segment.points), 'run')}"
    if len(segments) > 1:
        fingerprint = segment.fingerprint and f"fingerprint {segment.fingerprint[:8]}"
        if segment.differs_in:
            fingerprint = f"differs from series 1 in {listed(segment.differs_in)}"
        keys = "; ".join(filter(None, [fingerprint, _work_text(segment)]))
        heading += f", series {position} of {len(segments)} ({keys})"
    return heading


def _picture(histories: Sequence[BenchmarkHistory]) -> str:
    """A chart of each series."""
    from gpubench_plugin.cli.report.histories import history_of, known_run
    from gpubench_plugin.reports.html.charts import history_chart
    from gpubench_plugin.reports.html.svg import svg

    charts = []
    for history in histories:
        for place, segment in enumerate(history.segments, start=1):
            runs = [known_run(point) for point in segment.points]
            positions = {run.run_id: position for position, run in enumerate(runs)}
            chart = history_chart(history_of(segment, history.metric, positions), runs)
            title = f"{history.benchmark}: {_heading(history, place)}"
            charts.append(replace(chart, title=title))
    return svg(charts, listed([history.benchmark for history in histories]))


def history_csv(histories: Sequence[BenchmarkHistory]) -> str:
    """One row per run; `change` is set where a new level starts, `work` is per series."""
    rows = (
        [
            printable(cell) if isinstance(cell, str) else cell
            for cell in (history.benchmark, history.metric, *row)
        ]
        for history in histories
        for segment in history.segments
        for row in _rows(segment)
    )
    return csv_text([_CSV, *rows])


def _rows(segment: TrendSegment) -> Iterator[tuple[Cell, ...]]:
    changes = {change.index: change.change for change in segment.changes or ()}
    for index, point in enumerate(segment.points):
        values = (getattr(point, name) for name in _POINT)
        work, doubts = _work_text(segment), ";".join(point.doubts)
        yield segment.fingerprint, *values, point.unit, changes.get(index), work, doubts


def _work_text(segment: TrendSegment) -> str:
    """Work per call; empty if none or unknown."""
    return " ".join(f"{name}={amount:.6g}" for name, amount in (segment.work or {}).items())


def _plot(segment: TrendSegment, total: int) -> Iterator[str]:
    values = [point.value for point in segment.points]
    marks = {change.index for change in segment.changes or ()}
    bars = sparkline(values, marks)
    columns = max(total - 2, 1)
    for start in range(0, len(bars), columns):
        yield f"  {bars[start : start + columns]}"
    unit = segment.points[-1].unit
    low, high = (number(extreme, unit) for extreme in (min(values), max(values)))
    yield f"  {printable(f'lowest {low}, highest {high}')}"


def _table(segment: TrendSegment, total: int) -> list[str]:
    points = segment.points
    marks = {c.index: f"new {signed(c.change)}".strip() for c in segment.changes or ()}
    return lines(
        [
            column("run", [point.run_id for point in points]),
            column("value", [_value(point) for point in points], numeric=True),
            column("commit", [short_commit(point.commit) for point in points]),
            column("branch", [point.branch or "" for point in points]),
            column("level", [marks.get(i, "") for i in range(len(points))]),
            column("doubts", [", ".join(point.doubts) for point in points]),
        ],
        total,
    )


def _value(point: Point) -> str:
    return "≈ " * bool(point.doubts) + number(point.value, point.unit)


def _changes(segment: TrendSegment, total: int) -> Iterator[str]:
    if segment.changes == ():
        yield "no level change detected"
    for change in segment.changes or ():
        unit = change.point.unit
        old_level, new_level = (
            number(level, unit) for level in (change.old_level, change.new_level)
        )
        commit = f" (commit {short_commit(change.point.commit)})" if change.point.commit else ""
        size = signed(change.change)
        yield from wrapped(
            f"new level starting with {change.point.run_id}{commit}: {old_level} → "
            f"{new_level}{size and f', {size}'}",
            total,
        )
