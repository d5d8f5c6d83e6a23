"""``gpubench history``: how a benchmark did over runs, and where its level changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from gpubench_plugin.cli.commands._places import (
    Places,
    add_format,
    add_last,
    add_places,
    columns,
    glyphs,
    note,
    say,
    say_json,
    say_text,
)
from gpubench_plugin.cli.commands.base import Command, Exit
from gpubench_plugin.errors import not_one_of
from gpubench_plugin.reports import trend

if TYPE_CHECKING:
    import argparse

    from gpubench_plugin.compare.baselines import Past, Point

_MAIN: Final = "main"
_NOT_LOOKED_FOR: Final = (
    "changes of level are not looked for: pip install 'pytest-gpubench[history]'"
)


class History(Command):
    """The values of one metric of one benchmark over runs, with the changes of its level.

    A change of level is for people to look at: it gates nothing, and the exit code is 0. What was
    measured on another machine, with another configuration, by another clock or with another amount
    of work in a call stands apart.
    """

    help: ClassVar[str] = "show how a benchmark did over runs, and where its level changed"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Which benchmark, and how much of it."""
        parser.add_argument("benchmark", metavar="BENCHMARK", help="a node id, or a part of one")
        parser.add_argument(
            "--metric", help="which metric (the step time by which the benchmark is judged)"
        )
        parser.add_argument(
            "--branch", help=f"of which branch ({_MAIN}, where it has runs); empty: any"
        )
        add_last(parser, default=60)
        add_format(parser, ("table", "csv", "json"))
        add_places(parser)

    def run(self, options: argparse.Namespace) -> int:
        """Print it."""
        from gpubench_plugin.compare.baselines import Past, courses
        from gpubench_plugin.results.registry import reachable

        places = Places.of(options)
        with reachable(places.registry, places.results_dir) as reached:
            past = Past(places.results_dir, reached.registry, reached.note)
            benchmark, metric, points = _points(past, options)
        series = courses(points)
        if any(course.changes is None for course in series):
            past.notes.append(_NOT_LOOKED_FOR)
        note(past.notes)
        if options.format == "json":
            say_json(trend.courses_as_json(benchmark, metric, series))
        elif options.format == "csv":
            say_text(trend.courses_as_csv(series))
        else:
            say(trend.course_lines(benchmark, metric, series, columns(), glyphs()))
        return Exit.FINE


def _branch(past: Past, options: argparse.Namespace) -> str | None:
    """The branch that is asked for, by itself the main one; None for all, where it has no run."""
    if options.branch is not None:
        return options.branch or None
    if past.benchmarks(_MAIN):
        return _MAIN
    past.notes.append(f"no run of branch {_MAIN} is known; these are of any branch")
    return None


def _points(past: Past, options: argparse.Namespace) -> tuple[str, str, list[Point]]:
    """The benchmark that is meant, the metric, and its values.

    Raises:
        UsageProblem: no benchmark, or no metric, is called so; the message names the nearest.
    """
    from gpubench_plugin.compare.baselines import the_benchmark

    branch = _branch(past, options)

    def looked_up(benchmark: str) -> tuple[str, str, list[Point]]:
        metric = options.metric or past.step_time(benchmark, branch=branch)
        points = past.points(benchmark, metric, branch=branch, limit=options.last)
        return benchmark, metric, points

    benchmark, metric, points = looked_up(options.benchmark)
    if not points:
        where = f"branch {branch} (--branch= takes any)" if branch else "all branches"
        whole = the_benchmark(options.benchmark, past.benchmarks(branch), where)
        benchmark, metric, points = looked_up(whole)
    if not points:
        raise not_one_of("--metric", metric, past.metrics(benchmark, branch))
    return benchmark, metric, points
