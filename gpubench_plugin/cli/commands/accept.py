"""``gpubench accept``: accept a benchmark's new level."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.cli.commands._places import (
    BENCHMARK,
    RUN,
    Locations,
    add_locations,
    echo,
    warn,
)
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.errors import UsageProblem
from gpubench_plugin.reports import printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from gpubench_plugin.compare.baselines import Baseline
    from gpubench_plugin.records import Run


class Accept(Command):
    """Accepts one benchmark's level in a run as its new reference."""

    help: ClassVar[str] = "accept the new level of one benchmark, with a reason"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Run, benchmark, and reason."""
        parser.add_argument("run", **RUN)
        parser.add_argument("benchmark", **BENCHMARK)
        parser.add_argument("--reason", required=True, help="why the new level is acceptable")
        parser.add_argument(
            "--baseline", metavar="NAME", help="baseline name (default: the only one)"
        )
        add_locations(parser)

    def run(self, options: argparse.Namespace) -> int:
        """Move the benchmark's anchor."""
        from gpubench_plugin.compare.baselines import the_benchmark

        if not options.reason.strip():
            raise UsageProblem("--reason: empty; allowed: why the new level is acceptable")
        paths = Locations.of(options)
        with paths.baselines() as (baselines, resolver):
            name = options.baseline or baselines.the_only()
            baseline = baselines.require(name)
            run = resolver.candidate(options.run).run
            measured = [i for i, r in run.results.items() if r.outcome == "measured"]
            benchmark = the_benchmark(options.benchmark, measured, f"the run {run.run_id}")
            baselines.accept(name, run.run_id, benchmark, reason=options.reason)
        echo([f"accepted in baseline {printable(name)}, starting with {printable(run.run_id)}:"])
        echo([f"  {printable(benchmark)}"])
        warn(_warnings(run, baseline))
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
