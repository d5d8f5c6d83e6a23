"""``gpubench history``: a benchmark's results over time, and its level changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from gpubench_plugin.cli.commands._places import (
    BENCHMARK,
    Locations,
    add_format,
    add_last,
    add_locations,
    echo,
    echo_json,
    echo_text,
    glyphs,
    output_width,
    warn,
)
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.errors import invalid_choice
from gpubench_plugin.reports import trend

if TYPE_CHECKING:
    import argparse

    from gpubench_plugin.compare.baselines import HistorySource, Point

_MAIN: Final = "main"
_EXTRA_MISSING: Final = "level changes are not detected: pip install 'pytest-gpubench[history]'"


class History(Command):
    """Shows one metric of one benchmark over runs, with its level changes.

    Level changes are informative: they gate nothing, and the exit code is 0. Results of another
    machine, configuration, clock or amount of work per call are separate series.
    """

    help: ClassVar[str] = "show a benchmark's results over runs, and where its level changed"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Benchmark, metric, branch and number of runs."""
        parser.add_argument("benchmark", **BENCHMARK)
        parser.add_argument(
            "--metric", help="metric (default: the step time that the benchmark is judged by)"
        )
        parser.add_argument(
            "--branch", help=f"branch (default: {_MAIN}, if it has runs); empty: any"
        )
        add_last(parser, default=60)
        add_format(parser, ("table", "csv", "json"))
        add_locations(parser)

    def run(self, options: argparse.Namespace) -> int:
        """Print the history."""
        from gpubench_plugin.compare.baselines import HistorySource, trend_segments
        from gpubench_plugin.results.registry import connect

        paths = Locations.of(options)
        with connect(paths.registry, paths.results_dir) as connection:
            history = HistorySource(paths.results_dir, connection.registry, connection.note)
            benchmark, metric, points = _points(history, options)
        segments = trend_segments(points)
        if any(segment.changes is None for segment in segments):
            history.notes.append(_EXTRA_MISSING)
        warn(history.notes)
        if options.format == "json":
            echo_json(trend.history_json(benchmark, metric, segments))
        elif options.format == "csv":
            echo_text(trend.history_csv(segments))
        else:
            echo(trend.history_lines(benchmark, metric, segments, output_width(), glyphs()))
        return ExitCode.OK


def _branch(history: HistorySource, options: argparse.Namespace) -> str | None:
    """The requested branch; by default the main one, or all where main has no runs."""
    if options.branch is not None:
        return options.branch or None
    if history.benchmarks(_MAIN):
        return _MAIN
    history.notes.append(f"no run of branch {_MAIN} is known; showing all branches")
    return None


def _points(history: HistorySource, options: argparse.Namespace) -> tuple[str, str, list[Point]]:
    """Resolve the benchmark and metric, and load the values.

    Raises:
        UsageProblem: no benchmark or no metric of this name; the message names the nearest.
    """
    from gpubench_plugin.compare.baselines import the_benchmark

    branch = _branch(history, options)

    def load(benchmark: str) -> tuple[str, str, list[Point]]:
        metric = options.metric or history.step_time(benchmark, branch=branch)
        points = history.points(benchmark, metric, branch=branch, limit=options.last)
        return benchmark, metric, points

    benchmark, metric, points = load(options.benchmark)
    if not points:
        scope = f"the runs on branch {branch} (--branch= selects any)" if branch else "the runs"
        name = the_benchmark(options.benchmark, history.benchmarks(branch), scope)
        benchmark, metric, points = load(name)
    if not points:
        raise invalid_choice("--metric", metric, history.metrics(benchmark, branch))
    return benchmark, metric, points
