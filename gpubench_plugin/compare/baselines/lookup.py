"""Lookup of a run that a user named, and the objections to it as a sample.

A run is looked up in its folder, then in the registry of all machines. A sample is a run that later
ones are judged by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpubench_plugin.environment import listed
from gpubench_plugin.errors import RegistryError, ResultsError, UsageProblem, nearest
from gpubench_plugin.flags import CONTENDED, SUSPENDED, THROTTLED, UNSTEADY
from gpubench_plugin.results import find_run, run_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from gpubench_plugin.records import Run
    from gpubench_plugin.results import Overview, RunDirectory
    from gpubench_plugin.results.registry import Registry


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


def unfit_as_level(run: Run) -> list[str]:
    """What else speaks against pinning `run`: most of its numbers are known to be no level."""
    raised, measured = _raised(run, (THROTTLED, UNSTEADY))
    if 2 * raised <= measured:
        return []
    return [f"throttled or unsteady are {raised} of the {measured} benchmarks that it measured"]


def _raised(run: Run, names: Collection[str]) -> tuple[int, int]:
    """How many measured benchmarks raised a flag called so, and how many there are."""
    measured = [result for result in run.results.values() if result.outcome == "measured"]
    return sum(not set(names).isdisjoint(one.flags) for one in measured), len(measured)


def regressions(directory: RunDirectory) -> int:
    """How many verdicts of the run in `directory` are regressions; 0 where it was never judged.

    Raises:
        ResultsError: its verdicts cannot be read: nobody knows.
    """
    from gpubench_plugin.results import verdicts

    path = directory.verdicts
    if not path.is_file():
        return 0
    return len(verdicts.read(path).regressed)


@dataclass(frozen=True, kw_only=True)
class Found:
    """A run, what speaks against pinning it, and its folder; None: only the registry has it."""

    run: Run
    objections: tuple[str, ...]
    directory: RunDirectory | None

    @property
    def remarks(self) -> list[str]:
        """What does not speak against it, but is worth knowing when it is pinned."""
        raised, measured = _raised(self.run, (CONTENDED,))
        if 2 * raised <= measured:
            return []
        return [f"contended are {raised} of the {measured} benchmarks that it measured"]


def find(text: str, *, registry: Registry | None, results_dir: Path, here: Path) -> Found:
    """The run that `text` names: its folder, its id or the id's beginning.

    Raises:
        UsageProblem: there is none, there are several, or its files are broken.
        ResultsError: they cannot be read.
    """
    try:
        directory = find_run(results_dir, text, here=here)
    except UsageProblem:
        row = registered(text, registry)
        run = registry.run(row.run_id) if registry is not None and row is not None else None
        if row is None or run is None:
            raise
        against = [*objections(run, int(row.regressed)), *unfit_as_level(run)]
        return Found(run=run, objections=tuple(against), directory=None)
    run = run_in(directory)
    against = [*_objections(run, directory), *unfit_as_level(run)]
    return Found(run=run, objections=tuple(against), directory=directory)


def registered(text: str, registry: Registry | None) -> Overview | None:
    """The only run of the registry whose id begins with `text`; None where it is not known."""
    if registry is None or not text:
        return None
    try:
        runs = [run for run in registry.runs() if run.run_id.startswith(text)]
    except RegistryError:
        return None
    matches = [run for run in runs if run.run_id == text] or runs
    return matches[0] if len(matches) == 1 else None


def the_benchmark(text: str, names: Iterable[str], where: str) -> str:
    """The one of `names` that `text` is, or is a part of; `where` says whose names they are.

    Raises:
        UsageProblem: it is a part of none, or of several; the message names them.
    """
    known = sorted(names)
    if text in known:
        return text
    found = [name for name in known if text in name]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageProblem(
            f"{len(found)} benchmarks of {where} have {text!r} in them: {listed(found, most=10)}"
        )
    short = {name.rpartition("::")[2]: name for name in known}
    hint = nearest(text, known) or nearest(text, short)
    there = f"; there are: {listed(known, most=10)}" if known else "; there is none at all"
    raise UsageProblem(f"no benchmark of {where} has {text!r} in it{hint}{there}")


def _objections(run: Run, directory: RunDirectory) -> list[str]:
    try:
        return objections(run, regressions(directory))
    except ResultsError as error:
        return [*objections(run, 0), f"whether it regressed cannot be read ({error})"]
