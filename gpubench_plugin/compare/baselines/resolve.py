"""Resolution of ``--baseline``: a single run, or the history of a baseline with its samples.

A single run is named by a path, an id or a baseline, and is found here or in the registry.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gpubench_plugin.compare.baselines.last import last_runs
from gpubench_plugin.compare.baselines.model import RUN_ID
from gpubench_plugin.compare.baselines.samples import LaterRuns, Window
from gpubench_plugin.compare.baselines.store import Baselines
from gpubench_plugin.errors import GpubenchError, RegistryError, UsageProblem
from gpubench_plugin.records import LAST, Run
from gpubench_plugin.results import read_run, run_in, runs_in
from gpubench_plugin.results.registry import Reachable, reachable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from gpubench_plugin.compare.baselines.model import Baseline


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What a run is compared with.

    Attributes:
        label: what messages call it, as the user named it.
        kind: ``history``: a baseline with samples from several runs; ``single``: one run or file,
            for which there is the threshold only; ``last``: of each benchmark the last comparable
            run, for which there is no more; ``missing``: no baseline is called so, or no run is
            there yet.
        runs: the oldest first. Those of a history hold only the results that are samples: a
            benchmark that is none in a run is not among that run's results.
        pinned: ids of the runs the baseline pins, found or not.
        notes: lines for the user.
        unanswered: why the registry did not answer, where nobody therefore knows whether there is
            such a baseline, or one of its pinned runs.
        slip: that the name of a missing baseline is likely a slip for another one's; else empty.
    """

    label: str
    kind: Literal["history", "single", "last", "missing"]
    runs: tuple[Run, ...] = ()
    pinned: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unanswered: str = ""
    slip: str = ""


def reference(
    text: str,
    *,
    settings_url: str,
    results_dir: Path,
    here: Path,
    benchmarks: Collection[str],
    head: Run | None = None,
    exclude: str = "",
) -> Reference:
    """What `text` names.

    A text with a folder separator, or that ends with ``.json``, is a path; then a baseline's name
    is looked for, then a run's id or its beginning. :data:`.model.LAST` is the last comparable run,
    unless a baseline is called so from before.

    Args:
        text: as the user gave it to ``--baseline``, or to ``gpubench compare``.
        settings_url: the registry's URL, ``none``, or empty for the default one.
        results_dir: where runs and baselines are.
        here: what a relative path is seen from.
        benchmarks: node ids that are to be judged; of others only the pinned runs tell.
        head: the run to be judged. It is never a sample, and of later runs only those are that
            have its fingerprints. Leave it out, for `exclude`, where all machines count.
        exclude: the id of a run that is never a sample, where there is no `head` yet.

    Raises:
        UsageProblem: a path or a run that is not there, or is the run to be judged itself.
        RegistryError: a run's id that is not here, and the registry does not answer.
        ResultsError: the baseline's file, or the run's, cannot be read.
    """
    own = head.run_id if head is not None else exclude
    if names_a_run(text) and not RUN_ID.fullmatch(text):
        return _single(text, read_run(text, results_dir=results_dir, here=here), own)
    with reachable(settings_url, results_dir) as reached:
        baselines = Baselines(results_dir, reached.registry, unanswered=reached.note)
        if RUN_ID.fullmatch(text):
            return _single(text, _run_called(text, reached, results_dir, here), own)
        if (found := baselines.get(text)) is not None:
            history = _History(found, reached, results_dir, benchmarks, head=head, own=own)
            return history.reference((*baselines.notes, *_shadowed(text)))
        if text == LAST and head is not None:
            return _last(head, results_dir, reached)
        return Reference(
            label=text,
            kind="missing",
            # The note of a registry that broke off stands in the message already.
            notes=(baselines.unknown(text), *(() if baselines.unanswered else baselines.notes)),
            unanswered=baselines.unanswered,
            slip=baselines.slip(text),
        )


def _shadowed(name: str) -> Iterator[str]:
    """That a baseline from before stands in the way of the last run."""
    if name == LAST:
        yield (
            f"a baseline is called {LAST!r}, and is taken instead of the last run; pin its runs "
            f"under another name and remove it: gpubench baseline rm {LAST}"
        )


def _last(head: Run, results_dir: Path, reached: Reachable) -> Reference:
    last = last_runs(head, results_dir=results_dir, reached=reached)
    return Reference(
        label=LAST, kind="last" if last.runs else "missing", runs=last.runs, notes=last.notes
    )


def rested_on(
    baselines: Iterable[Baseline], *, settings_url: str, results_dir: Path
) -> dict[str, str]:
    """The ids of all runs that `baselines` have samples in, each with a baseline's name.

    Raises:
        ResultsError: a baseline's file cannot be read.
    """
    found: dict[str, str] = {}
    for baseline in baselines:
        about: dict[str, Any] = {
            "settings_url": settings_url,
            "results_dir": results_dir,
            "here": results_dir,
        }
        pinned = reference(baseline.name, benchmarks=(), **about)
        benchmarks = {benchmark for run in pinned.runs for benchmark in run.results}
        benchmarks |= {*baseline.acceptances}
        history = reference(baseline.name, benchmarks=benchmarks, **about)
        found |= {run.run_id: baseline.name for run in history.runs}
    return found


def names_a_run(text: str) -> bool:
    """Whether `text` is a path or the id of a run, so that no baseline can be called so."""
    return os.sep in text or text.endswith(".json") or RUN_ID.fullmatch(text) is not None


def _single(text: str, run: Run, own: str) -> Reference:
    if own and run.run_id == own:
        raise UsageProblem(f"--baseline={text}: it is the very run that is to be judged")
    return Reference(label=text, kind="single", runs=(run,))


def _run_called(text: str, reached: Reachable, results_dir: Path, here: Path) -> Run:
    """The run in its folder, else in the registry of all machines."""
    try:
        return read_run(text, results_dir=results_dir, here=here)
    except UsageProblem as problem:
        try:
            found = _registered(text, reached)
        except RegistryError as error:
            raise RegistryError(
                f"{problem}; whether the registry has it is not known: {error}"
            ) from None
        if found is None:
            raise
        return found


def _registered(run_id: str, reached: Reachable) -> Run | None:
    """The run in the registry; raises RegistryError where that should answer and does not."""
    if reached.note:
        raise RegistryError(reached.note)
    return None if reached.registry is None else reached.registry.run(run_id)


class _History:
    """The samples of one baseline, collected by run id.

    A run may give some of them as an anchor, and others as one of the later runs of the branch.
    """

    def __init__(
        self,
        baseline: Baseline,
        reached: Reachable,
        results_dir: Path,
        benchmarks: Collection[str],
        *,
        head: Run | None,
        own: str,
    ):
        self._baseline = baseline
        self._reached = reached
        self._results_dir = results_dir
        self._benchmarks = benchmarks
        self._head = head
        self._own = own
        self._accepted = {n: a.run for n, a in baseline.acceptances.items() if n in benchmarks}
        self._last_pin = max(baseline.runs, default="")
        self._window = Window(anchors=self._accepted, since=self._last_pin, head=head)
        self._runs: dict[str, Run] = {}
        self._notes: list[str] = []
        self._unanswered = ""

    def reference(self, notes: Iterable[str]) -> Reference:
        for run in self._found(self._baseline.runs, "pinned"):
            self._add(self._window.take(run, pinned=True))
        for run in self._found(sorted(set(self._accepted.values())), "accepted"):
            own = {name for name, anchor in self._accepted.items() if anchor == run.run_id}
            known = self._runs.get(run.run_id)
            self._add(self._window.take(run, only=own, but=known.results if known else ()))
        self._add_later()
        return Reference(
            label=self._baseline.name,
            kind="history",
            runs=tuple(self._runs[i] for i in sorted(self._runs)),
            pinned=self._baseline.runs,
            notes=(*notes, *self._notes),
            unanswered=self._unanswered,
        )

    def _add_later(self) -> None:
        branch = self._baseline.branch
        if branch is None:
            return
        source = LaterRuns(
            self._results_dir,
            self._reached,
            branch=branch,
            head=self._head,
            skipped={self._own, *self._baseline.runs},
        )
        by_anchor: dict[str, list[str]] = {}
        for name in self._benchmarks:
            by_anchor.setdefault(self._accepted.get(name, self._last_pin), []).append(name)
        for anchor, names in sorted(by_anchor.items()):
            for run in source.since(anchor, names):
                if self._window.full(names):
                    break
                known = self._runs.get(run.run_id)
                self._add(self._window.take(run, only=names, but=known.results if known else ()))
        self._notes += source.notes

    def _add(self, run: Run) -> None:
        known = self._runs.get(run.run_id)
        if known is not None:
            self._runs[run.run_id] = replace(known, results={**known.results, **run.results})
        elif run.results:
            self._runs[run.run_id] = run

    def _found(self, run_ids: Iterable[str], what: str) -> Iterator[Run]:
        """Those of the runs that are there; of the others a note tells."""
        folders = {d.run_id: d for d in runs_in(self._results_dir)}
        for run_id in run_ids:
            if run_id == self._own:
                self._notes.append(f"{run_id} is {what}, but no sample: it is judged itself")
                continue
            try:
                run = run_in(folders[run_id]) if run_id in folders else None
            except GpubenchError as error:
                self._notes.append(f"the {what} run {run_id}: {error}")
                run = None
            where = f"is gone: neither in {self._results_dir} nor in the registry"
            try:
                run = run or _registered(run_id, self._reached)
            except RegistryError as error:
                where = f"is not in {self._results_dir}, and whether the registry has it is not "
                where += f"known: {error}"
                self._unanswered = str(error)
            if run is not None:
                yield run
            else:
                self._notes.append(f"the {what} run {run_id} {where}; it is no sample")


@dataclass(frozen=True, kw_only=True)
class NamedRun:
    """A run, and lines for the user about how it was found."""

    run: Run
    notes: tuple[str, ...] = ()


def named_run(text: str, *, url: str, results_dir: Path, here: Path) -> NamedRun:
    """The run that `text` names; its label is `text`.

    What is no path and no run here is looked for among the baselines, of which the first pinned
    run counts, and in the registry at `url`.

    Raises:
        UsageProblem: nothing is called so, or it is no run, and why.
        RegistryError: nothing here is called so, or its run is not here, and the registry does not
            answer.
        ResultsError: it cannot be read.
    """
    try:
        return NamedRun(run=read_run(text, results_dir=results_dir, here=here))
    except UsageProblem as problem:
        if not text or os.sep in text or text.endswith(".json") or (here / text).exists():
            raise
        return _elsewhere(text, problem, url, results_dir, here)


def _elsewhere(
    text: str, problem: UsageProblem, url: str, results_dir: Path, here: Path
) -> NamedRun:

    found = reference(
        text, settings_url=url, results_dir=results_dir, here=here, benchmarks=frozenset()
    )
    kind = RegistryError if found.unanswered else UsageProblem
    if found.kind == "missing":
        raise kind("; ".join((str(problem), *found.notes))) from None
    if not found.runs:
        raise kind(f"baseline {text!r}: {'; '.join(found.notes)}")
    first = found.runs[0]
    label = text if found.kind == "single" else f"{text} ({first.run_id})"
    return NamedRun(run=replace(first, label=label), notes=tuple(_notes(found, first)))


def _notes(found: Reference, first: Run) -> Iterator[str]:
    """What the baseline has to say, and that not the run stands for it that should."""
    yield from (f"baseline {found.label!r}: {note}" for note in found.notes)
    if found.pinned and min(found.pinned) != first.run_id:
        yield f"baseline {found.label!r}: {first.run_id} stands in for {min(found.pinned)}"
