"""Whether a run may be a sample that later ones are judged by, and what speaks against it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.environment.waking_clock import SUSPENDED

if TYPE_CHECKING:
    from gpubench_plugin.results.run_directory import RunDirectory
    from gpubench_plugin.runs import Run


def objections(run: Run, regressions: int) -> list[str]:
    """What speaks against `run`, whose verdicts have so many `regressions`; empty: nothing."""
    found = []
    if run.status != "complete":
        found.append(f"it is {run.status or 'of unknown status'}, not complete")
    if regressions:
        found.append(f"it regressed (verdicts that say so: {regressions})")
    if run.dirty:
        found.append("its code had uncommitted changes")
    if suspended := sum(SUSPENDED in result.flags for result in run.results.values()):
        found.append(f"the process was stopped while it measured (benchmarks: {suspended})")
    if not any(result.outcome == "measured" for result in run.results.values()):
        found.append("it has no measured benchmark")
    return found


def regressions(directory: RunDirectory) -> int:
    """How many verdicts of the run in `directory` are regressions; 0 where it was never judged.

    Raises:
        ResultsError: its verdicts cannot be read: nobody knows.
    """
    from gpubench_plugin.results import verdicts

    path = directory.verdicts
    if not path.is_file():
        return 0
    document = verdicts.read(path)
    return sum(row.verdict == "regressed" for row in document.benchmarks)
