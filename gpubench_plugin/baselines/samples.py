"""Samples of a history: the later runs of a branch, and objections to a run as a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpubench_plugin.compare.matching import WINDOW
from gpubench_plugin.core.format import counted
from gpubench_plugin.core.quality_flags import CONTENDED, SUSPENDED, THROTTLED, UNSTEADY
from gpubench_plugin.environment.fingerprints import fingerprint_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from gpubench_plugin.core.records import Run
    from gpubench_plugin.results.registry.registry import Registry

_OF_ANY_MACHINE: Final = 10 * WINDOW
"""Runs per benchmark without a head's fingerprint, for windows of ten machines."""


def later_runs(
    index: Registry,
    run_id: str,
    benchmarks: Collection[str],
    *,
    branch: str,
    head: Run | None,
    excluded: Collection[str],
) -> list[Run]:
    """Runs of the branch from `run_id` on with any of `benchmarks`, restricted to those.

    Complete and clean ones without regressions, oldest first; with the machine and the clocks of
    `head`, if given.
    """
    fingerprints = {} if head is None else dict(_fingerprints(head, benchmarks))
    runs = index.earlier(
        benchmarks,
        branch=branch,
        since=run_id,
        limit=len(excluded) + (WINDOW if fingerprints else _OF_ANY_MACHINE),
        fingerprints=fingerprints,
    )
    return [run for run in runs if run.run_id not in excluded]


def _fingerprints(head: Run, benchmarks: Collection[str]) -> Iterator[tuple[str, str]]:
    """Fingerprints of the benchmarks that the head measured; others have no timer."""
    for name in benchmarks:
        result = head.results.get(name)
        if result is not None and result.timer:
            yield name, fingerprint_of(head.machine, result.settings, result.timer)


def objections(run: Run, regressions: int) -> list[str]:
    """Objections to `run` as a sample, given its number of `regressions`; empty if none."""
    reasons = []
    if run.status != "complete":
        reasons.append(f"it is {run.status or 'of unknown status'}, not complete")
    if regressions:
        reasons.append(f"it has {counted(regressions, 'regressed verdict')}")
    if run.dirty:
        reasons.append("its code had uncommitted changes")
    if suspended := sum(SUSPENDED in result.flags for result in run.results.values()):
        reasons.append(
            f"the process was suspended while measuring ({counted(suspended, 'benchmark')})"
        )
    if not any(result.outcome == "measured" for result in run.results.values()):
        reasons.append("it measured no benchmark")
    return reasons


def pin_objections(run: Run) -> list[str]:
    """Further objections to pinning `run`: most of its results are throttled or unsteady."""
    return _mostly(run, THROTTLED, UNSTEADY)


def remarks(run: Run) -> list[str]:
    """Notes on pinning `run` that are no objections."""
    return _mostly(run, CONTENDED)


def _mostly(run: Run, *flags: str) -> list[str]:
    """A note if more than half of the measured benchmarks raised one of `flags`."""
    measured = [result for result in run.results.values() if result.outcome == "measured"]
    flagged = sum(not set(flags).isdisjoint(result.flags) for result in measured)
    if 2 * flagged <= len(measured):
        return []
    names = " or ".join(flags)
    return [f"most of its measured benchmarks are {names} ({flagged} of {len(measured)})"]
