"""``gpubench history``: a benchmark's results over time, and its level changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from gpubench_plugin.cli import trend
from gpubench_plugin.cli.commands._places import (
    BENCHMARK,
    Locations,
    add_last,
    add_locations,
    echo_text,
    glyphs,
    output_width,
    show,
    warn,
)
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.core.errors import UsageProblem, invalid_choice

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from gpubench_plugin.baselines.trend import BenchmarkHistory, HistorySource

_MAIN: Final = "main"
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
        parser.add_argument("--branch", help=f"default: {_MAIN}, if it has runs; empty: any")
        add_last(parser, default=60)
        add_locations(parser, ("table", "csv", "json"))

    def run(self, options: argparse.Namespace) -> int:
        """Print the history of every benchmark that the name matches."""
        from gpubench_plugin.baselines.trend import HistorySource

        paths = Locations.of(options)
        with paths.resolver() as resolver:
            source = HistorySource(resolver.index)
            notes = [*resolver.index_notes]
            branch = _branch(source, options)
            if branch is None and options.branch is None:
                notes.append(f"no run of branch {_MAIN} is known; showing all branches")
            histories = [*_histories(source, options, branch)]
            if options.metric is None:
                notes += _median_notes(source, histories, branch, options.last)
        if any(segment.changes is None for history in histories for segment in history.segments):
            notes.append(_EXTRA_MISSING)
        warn(notes)
        if options.format == "csv":
            echo_text(trend.history_csv(histories))
        else:
            lines = trend.history_lines(histories, output_width(), glyphs())
            show(options, trend.history_json(histories), lines)
        return ExitCode.OK


def _branch(source: HistorySource, options: argparse.Namespace) -> str | None:
    """The requested branch; by default the main one, or all where main has no runs."""
    if options.branch is not None:
        return options.branch or None
    return _MAIN if source.benchmarks(_MAIN) else None


def _median_notes(
    source: HistorySource, histories: Sequence[BenchmarkHistory], branch: str | None, last: int
) -> Iterator[str]:
    """Notes on new levels that only the median has, which is judged beside the minimum."""
    from gpubench_plugin.baselines.trend import levels_of_median

    for shown in histories:
        if new := levels_of_median(source, shown, branch=branch, limit=last):
            yield (
                f"{shown.benchmark}: the median has a new level starting with {', '.join(new)}, "
                f"{shown.metric} has none there; see --metric=step_time_s"
            )


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
        metric = options.metric or source.step_time(names[0], branch=branch)
        raise invalid_choice("--metric", metric, metrics)
    yield from histories


def _names(source: HistorySource, options: argparse.Namespace, branch: str | None) -> list[str]:
    """Benchmarks whose name matches; of too many for a terminal one is to be chosen."""
    from gpubench_plugin.baselines.benchmark_names import (
        ambiguous_benchmark,
        matching_benchmarks,
        unknown_benchmark,
    )

    scope = f"the runs on branch {branch} (--branch= selects any)" if branch else "the runs"
    measured = source.benchmarks(branch)
    if not measured:
        raise UsageProblem(
            f"no measured benchmark of {scope} in {Locations.of(options).results_dir} or its "
            "registry; measure with pytest, or give another --results-dir or --registry"
        )
    names = matching_benchmarks(options.benchmark, measured)
    if not names:
        raise unknown_benchmark(options.benchmark, measured, scope)
    if len(names) > _MOST_SHOWN and options.format == "table":
        raise ambiguous_benchmark(options.benchmark, names, scope)
    return names
