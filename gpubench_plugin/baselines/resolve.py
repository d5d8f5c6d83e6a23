"""Resolution of a user's text to a run, a baseline's history, or the last run.

A run is named by a path, an id or its beginning, and is searched here, then in the registry.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from gpubench_plugin.baselines.last import last_runs
from gpubench_plugin.baselines.model import RUN_ID, Reference
from gpubench_plugin.baselines.samples import KnownRuns, SampleCollector
from gpubench_plugin.baselines.store import Baselines
from gpubench_plugin.core.errors import BrokenFile, RegistryError, UsageProblem
from gpubench_plugin.core.format import counted
from gpubench_plugin.core.quality_flags import CONTENDED, DOUBTFUL_FLAGS, SUSPENDED
from gpubench_plugin.core.records import Run
from gpubench_plugin.core.verdicts import LAST
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.registry.locations import is_server
from gpubench_plugin.results.run_directory import LATEST, RunDirectory, find_run, runs_in
from gpubench_plugin.results.sources import load_run

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from gpubench_plugin.baselines.model import Baseline
    from gpubench_plugin.results.reader import RunOverview


# Doubts that leave no number of a level right; a suspended benchmark is one too many by itself.
_UNFIT = tuple(flag for flag in DOUBTFUL_FLAGS if flag not in {CONTENDED, SUSPENDED})


def looks_like_run(text: str) -> bool:
    """Whether `text` is a path or a run id and hence no baseline name."""
    return _is_path(text) or RUN_ID.fullmatch(text) is not None


def _is_path(text: str) -> bool:
    return os.sep in text or text.endswith(".json")


class Resolver(KnownRuns):
    """Resolution of texts, with relative paths from `here`; a context manager."""

    def baselines(self) -> Baselines:
        """The baselines of the server, or else of the results directory."""
        if not is_server(self.url):
            return Baselines(self.results_dir)
        return Baselines(self.results_dir, self.reached.registry, unanswered=self.reached.error)

    def find(self, text: str) -> RunDirectory | RunOverview:
        """The directory of the run that `text` names; else its overview in the registry.

        Raises:
            UsageProblem: no run or several match (so for all methods), or the registry cannot be
                reached.
        """
        try:
            return find_run(self.results_dir, text, cwd=self.here)
        except UsageProblem as problem:
            if (self.here / text).is_file():
                allowed = f"a run; to compare with the file, measure with --baseline={text}"
                raise UsageProblem(f"{text}: a file, not a run; allowed: {allowed}") from problem
            with suppress(RegistryError):
                return self._registered(text, problem)
            raise

    def candidate(self, text: str) -> Reference:
        """The run to pin, with objections and remarks.

        Raises:
            ResultsError: it cannot be read; so for the following methods.
        """
        place = self.find(text)
        if isinstance(place, RunDirectory):
            stored = RunReader(place)
            run, regressions = stored.run(), len(stored.regressed)
        else:
            run, regressions = self._stored(place), int(place.regressed)
        return Reference(
            label=text,
            kind="single",
            runs=(run,),
            notes=tuple(_mostly(run, CONTENDED)),
            objections=(*objections(run, regressions), *_mostly(run, *_UNFIT)),
        )

    def single(self, text: str) -> Reference:
        """The run or the file that `text` names.

        Raises:
            RegistryError: it is not here, and the registry cannot be reached; so for the following.
        """
        try:
            run = load_run(text, results_dir=self.results_dir, cwd=self.here)
        except BrokenFile:  # it is here: what the registry has would hide the damage
            raise
        except UsageProblem as problem:
            run = self._stored(self._registered(text, problem))
        return Reference(label=text, kind="single", runs=(run,))

    def run(self, text: str) -> Reference:
        """The run that `text` names, or the first pinned run of the baseline, with notes."""
        try:
            run = load_run(text, results_dir=self.results_dir, cwd=self.here)
        except BrokenFile:
            raise
        except UsageProblem as problem:
            if not text or _is_path(text) or LATEST.fullmatch(text) or (self.here / text).exists():
                raise
            return self._first_pinned(text, problem)
        return Reference(label=text, kind="single", runs=(run,))

    def reference(
        self, text: str, *, benchmarks: Collection[str], head: Run | None = None
    ) -> Reference:
        """The reference of ``--baseline``: a path, a run's id or its beginning, or a baseline.

        :data:`.LAST` is the last comparable run.

        Args:
            text: the user's.
            benchmarks: node ids to judge; for others only pinned runs are samples.
            head: the run to judge. It is never a sample, and later runs are samples only with its
                fingerprints; None for all machines.

        Raises:
            UsageProblem: also if it is the run to judge.
        """
        if looks_like_run(text):
            single = self.single(text)
            if head is not None and single.run.run_id == head.run_id != "":
                raise UsageProblem(f"--baseline={text}: this is the run being judged")
            return single
        if text == LAST and head is not None:
            return last_runs(head, results_dir=self.results_dir, connection=self.reached)
        baselines = self.baselines()
        try:
            baseline = baselines.get(text)
            if baseline is not None:
                return SampleCollector(baseline, self, benchmarks, head).reference()
            missing, typo = baselines.unknown(text), baselines.typo_message(text)
        except RegistryError as error:
            return Reference(
                label=text, kind="missing", notes=(str(error),), registry_error=str(error)
            )
        path = self.here / text
        if RunDirectory(path=path).journal.is_file():
            typo = f"there is no baseline of this name; for the run beside it write ./{text}"
        return Reference(label=text, kind="missing", notes=(missing,), typo_hint=typo)

    def rested_on(self, baselines: Iterable[Baseline]) -> dict[str, str]:
        """Ids of all sample runs of `baselines`, each with the name of one baseline."""
        names: dict[str, str] = {}
        for baseline in baselines:
            pinned = self.reference(baseline.name, benchmarks=())
            benchmarks = {benchmark for run in pinned.runs for benchmark in run.results}
            benchmarks |= baseline.acceptances.keys()
            history = self.reference(baseline.name, benchmarks=benchmarks)
            names |= {run.run_id: baseline.name for run in history.runs}
        return names

    def _registered(self, text: str, problem: UsageProblem) -> RunOverview:
        """The registered run with the id `text`, or the only one that starts so.

        Raises:
            UsageProblem: the `problem`, if there is none.
            RegistryError: the registry cannot be reached.
        """
        if not text or _is_path(text):
            raise problem
        try:
            runs = self.registry.runs(prefix=text) if self.registry is not None else []
        except RegistryError as error:
            raise RegistryError(f"{problem}; the registry could not be searched: {error}") from None
        exact = next((run for run in runs if run.run_id == text), None)
        here = any(run.run_id.startswith(text) for run in runs_in(self.results_dir))
        if exact is None and (here or len(runs) != 1):
            raise problem
        return exact or runs[0]

    def _stored(self, overview: RunOverview) -> Run:
        run = None if self.registry is None else self.registry.run(overview.run_id)
        if run is None:
            raise UsageProblem(f"{overview.run_id} was removed from the registry just now")
        return run

    def _first_pinned(self, text: str, problem: UsageProblem) -> Reference:
        """The first pinned run of the baseline `text`, or the run of the registry."""
        reference = self.reference(text, benchmarks=())
        kind = RegistryError if reference.registry_error else UsageProblem
        if reference.kind == "missing":
            raise kind("; ".join((str(problem), *reference.notes))) from None
        if not reference.runs:
            raise kind(f"baseline {text!r}: {'; '.join(reference.notes)}")
        run = reference.run
        label = text if reference.kind == "single" else f"{text} ({run.run_id})"
        notes = [f"baseline {text!r}: {note}" for note in reference.notes]
        if reference.pinned and min(reference.pinned) != run.run_id:
            pinned = f"the pinned run {min(reference.pinned)}"
            notes.append(f"baseline {text!r}: {run.run_id} is used instead of {pinned}")
        labelled = (replace(run, label=label),)
        return Reference(label=text, kind="single", runs=labelled, notes=tuple(notes))


def directories_of(
    baseline: Baseline, results_dir: Path
) -> tuple[tuple[RunDirectory, str | None], ...]:
    """Local directories of the pinned runs, with None, and of accepted ones, with the benchmark."""
    folders = {directory.run_id: directory for directory in runs_in(results_dir)}
    level: list[tuple[str, str | None]] = [(run, None) for run in sorted(baseline.runs)]
    level += [(run, benchmark) for benchmark, run in baseline.accepted_runs.items()]
    return tuple((folders[run], benchmark) for run, benchmark in level if run in folders)


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
    if not run.measured:
        reasons.append("it measured no benchmark")
    return reasons


def _mostly(run: Run, *flags: str) -> list[str]:
    """A note if more than half of the measured benchmarks raised one of `flags`."""
    measured = [result for result in run.results.values() if result.outcome == "measured"]
    flagged = sum(not set(flags).isdisjoint(result.flags) for result in measured)
    if 2 * flagged <= len(measured):
        return []
    names = " or ".join(f for f in flags if any(f in result.flags for result in measured))
    return [f"most of its measured benchmarks are {names} ({flagged} of {len(measured)})"]
