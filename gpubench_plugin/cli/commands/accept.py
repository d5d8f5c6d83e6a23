"""``gpubench accept``: accept a benchmark's new level."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from typing import ClassVar

from gpubench_plugin.baselines.model import Baseline
from gpubench_plugin.cli.benchmark_names import selected_benchmarks
from gpubench_plugin.cli.commands._places import (
    BENCHMARK,
    RUN,
    add_locations,
    resolver_of,
    show,
    warn,
)
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.core.records import Run
from gpubench_plugin.reports.text import printable


class Accept(Command):
    """Accepts the level of a benchmark, or with --all of several, in a run as its new reference.

    A name that matches several benchmarks accepts none without --all, and lists them.
    """

    help: ClassVar[str] = "accept the new level of a benchmark, with a reason"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Run, benchmark, and reason."""
        add = parser.add_argument
        add("run", **RUN)
        add("benchmark", **BENCHMARK)
        add("--reason", required=True, help="why the new level is acceptable")
        add("--all", action="store_true", help="accept all benchmarks that BENCHMARK matches")
        add("--baseline", metavar="BASELINE", help="baseline name (default: the only one)")
        add_locations(parser)

    def run(self, options: argparse.Namespace) -> int:
        """Move the anchors of the benchmarks."""
        with resolver_of(options) as resolver:
            baselines = resolver.baselines()
            name = options.baseline or baselines.the_only()
            baseline = baselines.require(name)
            run = resolver.candidate(options.run).run
            benchmarks = selected_benchmarks(
                options.benchmark,
                [id for id, result in run.results.items() if result.outcome == "measured"],
                f"the run {run.run_id}",
                most=math.inf if options.all else 1,
                allowed="give one of them, or --all",
            )
            for benchmark in benchmarks:
                baselines.accept(name, run.run_id, benchmark, reason=options.reason)
        notes = [*_warnings(run, baseline)]
        facts = {"baseline": name, "run_id": run.run_id, "accepted": benchmarks, "notes": notes}
        lines = [f"accepted in baseline {name}, starting with {run.run_id}:"]
        show(options, facts, map(printable, [*lines, *(f"  {name}" for name in benchmarks)]))
        warn(notes)
        return ExitCode.OK


def _warnings(run: Run, baseline: Baseline) -> Iterator[str]:
    branch, last_pinned = baseline.branch, max(baseline.runs, default="")
    if run.run_id < last_pinned and run.run_id not in baseline.runs:
        yield (
            f"the run is older than {last_pinned}, which the baseline pins: runs before the "
            "pin now count as samples of this benchmark; better accept a later run"
        )
    if branch is not None and run.branch != branch:
        run_branch = f"branch {run.branch!r}" if run.branch else "no branch"
        yield (
            f"the run is of {run_branch}, but the baseline follows {branch!r}: runs there "
            "from before the change is merged count as samples, too; better accept the first "
            f"run on {branch!r} after the merge"
        )
    if run.dirty:
        yield "the run's code had uncommitted changes"
