"""``gpubench accept``: a benchmark's new level is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.cli.commands._places import Places, add_places, note, say
from gpubench_plugin.cli.commands.base import Command, Exit
from gpubench_plugin.errors import UsageProblem
from gpubench_plugin.reports import printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from gpubench_plugin.compare.baselines import Baseline
    from gpubench_plugin.records import Run


class Accept(Command):
    """Accepts the level that one benchmark has in a run: it is judged from that run on."""

    help: ClassVar[str] = "accept the new level of one benchmark, with a reason"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Which benchmark of which run, and why."""
        parser.add_argument("run_named", metavar="RUN", help="a run's id or folder")
        parser.add_argument("benchmark", metavar="BENCHMARK", help="a node id, or a part of one")
        parser.add_argument("--reason", required=True, help="why the new level is fine")
        parser.add_argument(
            "--baseline", metavar="NAME", help="of which baseline, where there are several"
        )
        add_places(parser)

    def run(self, options: argparse.Namespace) -> int:
        """Move the benchmark's anchor."""
        from gpubench_plugin.compare.baselines import the_benchmark

        if not options.reason.strip():
            raise UsageProblem("--reason: empty; allowed: a text that says why it is accepted")
        places = Places.of(options)
        with places.baselines() as (baselines, resolver):
            name = options.baseline or baselines.the_only()
            baseline = baselines.expect(name)
            run = resolver.candidate(options.run_named).run
            measured = [i for i, r in run.results.items() if r.outcome == "measured"]
            benchmark = the_benchmark(options.benchmark, measured, f"the run {run.run_id}")
            baselines.accept(name, run.run_id, benchmark, reason=options.reason)
        say([f"accepted in baseline {printable(name)} from {printable(run.run_id)} on:"])
        say([f"  {printable(benchmark)}"])
        note(_doubts(run, baseline))
        return Exit.FINE


def _doubts(run: Run, baseline: Baseline) -> Iterator[str]:
    branch, last = baseline.branch, max(baseline.runs, default="")
    if run.run_id < last and run.run_id not in baseline.runs:
        yield (
            f"the run is older than {last}, which the baseline pins: runs from before the pin are "
            "samples of this benchmark now; rather accept a run after it"
        )
    if branch is not None and run.branch != branch:
        own = f"branch {run.branch!r}" if run.branch else "no branch"
        yield (
            f"the run is of {own}, but the baseline follows {branch!r}: runs there from before the "
            f"change arrives are samples too; rather accept the first run on {branch!r} after it"
        )
    if run.dirty:
        yield "the run's code had uncommitted changes"
