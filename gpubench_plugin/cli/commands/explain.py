"""``gpubench explain``: why a benchmark has its verdict, or how its value was measured."""

from __future__ import annotations

import argparse
from typing import ClassVar

from gpubench_plugin.baselines.resolve import Resolver
from gpubench_plugin.cli.ab.saved_state import MOST_NAMED, comparisons_in, find_comparison
from gpubench_plugin.cli.benchmark_names import run_benchmarks, selected_benchmarks
from gpubench_plugin.cli.commands._places import (
    BENCHMARK,
    add_locations,
    colored,
    echo_text,
    output_width,
    resolver_of,
    show,
)
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.cli.explain.comparison import ExplainedComparison
from gpubench_plugin.cli.explain.measurement import explain_measurement
from gpubench_plugin.cli.explain.run import explain_run
from gpubench_plugin.core.errors import BrokenFile, UsageProblem
from gpubench_plugin.reports.explanation import Explanation, explanation_lines
from gpubench_plugin.reports.markup import painted, plain
from gpubench_plugin.results import verdicts
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.run_directory import find_run
from gpubench_plugin.system import stored


class Explain(Command):
    """Explains a benchmark's verdict in a comparison of 'gpubench ab' or in a run.

    It shows the launches or runs in time order, their flags, each look, the origin of the limits,
    and what would decide. For a run that was not judged it shows how the value was measured.
    """

    help: ClassVar[str] = "explain a benchmark's verdict, or how its value was measured"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Comparison or run, and benchmark."""
        text = "folder or id of a run or of a gpubench ab comparison; last: the latest"
        parser.add_argument("subject", metavar="RUN|COMPARISON", help=text)
        parser.add_argument("benchmark", **BENCHMARK)
        add_locations(parser, ("text", "json", "svg"))

    def run(self, options: argparse.Namespace) -> int:
        """Print why the benchmark has its verdict, or how its value was measured."""
        with resolver_of(options) as resolver:
            explanation = _explanation(options.subject, options.benchmark, resolver)
        if options.format == "svg":
            echo_text(_picture(explanation))
            return ExitCode.OK
        render = painted if colored() else plain
        lines = map(render, explanation_lines(explanation, output_width()))
        show(options, stored.dump(explanation), lines)
        return ExitCode.OK


def _picture(explanation: Explanation) -> str:
    from gpubench_plugin.reports.html.charts import points_charts
    from gpubench_plugin.reports.html.svg import svg

    if charts := [*points_charts(explanation)]:
        return svg(charts, explanation.benchmark)
    raise UsageProblem(f"--format=svg: nothing of {explanation.benchmark} was measured")


def _explanation(text: str, benchmark: str, resolver: Resolver) -> Explanation:
    """Build the explanation of the benchmark in what `text` names.

    Raises:
        UsageProblem: no run or comparison of this name, or several; so for the benchmark.
        ResultsError: a file cannot be read.
    """
    if (comparison := find_comparison(resolver.results_dir, text, cwd=resolver.here)) is not None:
        return ExplainedComparison(comparison).explanation(benchmark)
    return _explained_run(text, benchmark, resolver)


def _explained_run(text: str, benchmark: str, resolver: Resolver) -> Explanation:
    try:
        directory = find_run(resolver.results_dir, text, cwd=resolver.here)
    except UsageProblem as error:
        names = ", ".join([*comparisons_in(resolver.results_dir)][-MOST_NAMED:]) or "none"
        raise UsageProblem(f"{error}; the latest comparisons: {names}") from None
    stored_run = RunReader(directory)
    run = stored_run.run()
    if (name := benchmark) not in run.results:  # one that was skipped is explained by its id
        scope, known = f"the run {run.run_id}", run_benchmarks(run.results)
        (name,) = selected_benchmarks(benchmark, known, scope)
    document = verdicts.read(directory.verdicts) if directory.verdicts.is_file() else None
    if document is not None and any(entry.metric for entry in document.for_benchmark(name)):
        return explain_run(run, document, name, resolver=resolver)
    measurement = {entry.id: entry for entry in stored_run.record().benchmarks}.get(name)
    if measurement is None:
        raise BrokenFile(f"{directory.config_resolved} has no configuration for {name}")
    return explain_measurement(run.run_id, measurement, document)
