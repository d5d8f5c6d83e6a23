"""Samples of a history: objections to a run, and the later runs of a branch.

Later runs come from the registry, or else from run directories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpubench_plugin.compare.matching import WINDOW
from gpubench_plugin.core.errors import GpubenchError, RegistryError
from gpubench_plugin.core.quality_flags import CONTENDED, SUSPENDED, THROTTLED, UNSTEADY
from gpubench_plugin.core.words import counted
from gpubench_plugin.environment.fingerprints import fingerprint_of
from gpubench_plugin.results.reader import StoredRun
from gpubench_plugin.results.run_directory import runs_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from gpubench_plugin.core.records import Run
    from gpubench_plugin.results.registry.connection import Connection
    from gpubench_plugin.results.registry.registry import Registry
    from gpubench_plugin.results.run_directory import RunDirectory


MAX_SEARCHED: Final = 1000
"""Run directories read without a registry, at most: bounds the time of a gate; not measured."""

_OF_ANY_MACHINE: Final = 10 * WINDOW
"""Registered runs per benchmark without a head's fingerprint, for windows of ten machines; not
measured."""


def read_runs(directories: Iterable[RunDirectory], notes: list[str]) -> Iterator[Run]:
    """The runs in `directories`; unreadable ones are skipped with a note."""
    for directory in directories:
        try:
            yield StoredRun(directory).run()
        except GpubenchError as error:
            notes.append(f"skipped: {error}")


def latest_registered(
    registry: Registry, *, limit: int, branch: str | None = None
) -> Iterator[Run]:
    """The latest runs in the registry, newest first; raises RegistryError."""
    for overview in registry.runs(branch=branch, limit=limit):
        if (run := registry.run(overview.run_id)) is not None:
            yield run


class LaterRuns:
    """Complete, clean runs of a branch without regressions, oldest first.

    `notes` says why the registry was not used, and which directory could not be read.
    """

    def __init__(
        self,
        results_dir: Path,
        connection: Connection,
        *,
        branch: str,
        head: Run | None,
        excluded_ids: Collection[str],
    ):
        self.notes: list[str] = []
        self._results_dir = results_dir
        self._registry: Registry | None = connection.registry
        self._branch = branch
        self._head = head
        self._excluded_ids = frozenset(excluded_ids)
        self._runs_by_id: dict[str, Run | None] = {}
        if connection.note:
            self._use_folders(connection.note)

    def since(self, run_id: str, benchmarks: Collection[str]) -> Iterator[Run]:
        """Runs from `run_id` on with any of `benchmarks`, restricted to those."""
        if self._registry is not None:
            try:
                candidates = self._registered(self._registry, run_id, benchmarks)
            except RegistryError as error:
                self._use_folders(str(error))
            else:
                yield from (run for run in candidates if run.run_id not in self._excluded_ids)
                return
        yield from self._in_folders(run_id)

    def _registered(
        self, registry: Registry, run_id: str, benchmarks: Collection[str]
    ) -> list[Run]:
        fingerprints = None if self._head is None else dict(_fingerprints(self._head, benchmarks))
        return registry.earlier(
            benchmarks,
            branch=self._branch,
            since=run_id,
            limit=len(self._excluded_ids) + (WINDOW if fingerprints else _OF_ANY_MACHINE),
            fingerprints=fingerprints,
        )

    def _in_folders(self, run_id: str) -> Iterator[Run]:
        candidates = [d for d in runs_in(self._results_dir) if d.run_id >= run_id]
        if len(candidates) > MAX_SEARCHED:
            self.notes.append(
                f"only the first {MAX_SEARCHED} runs after the pin were searched; a registry "
                "searches all"
            )
        for directory in candidates[:MAX_SEARCHED]:
            if directory.run_id in self._excluded_ids:
                continue
            if directory.run_id not in self._runs_by_id:
                self._runs_by_id[directory.run_id] = self._qualifying_run(directory)
            if (run := self._runs_by_id[directory.run_id]) is not None:
                yield run

    def _qualifying_run(self, directory: RunDirectory) -> Run | None:
        try:
            stored = StoredRun(directory)
            run = stored.run()
            qualifies = run.branch == self._branch and not objections(run, len(stored.regressed))
        except GpubenchError as error:
            self.notes.append(f"skipped: {error}")
            return None
        return run if qualifies else None

    def _use_folders(self, reason: str) -> None:
        self._registry = None
        self.notes.append(
            f"registry unavailable, only runs in {self._results_dir} are considered: {reason}"
        )


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
