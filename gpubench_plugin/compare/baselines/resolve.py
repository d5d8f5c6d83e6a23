"""Resolution of what a user names: a run, a baseline's history, or the last run.

A run is named by a path, an id or its beginning, and is looked for here, then in the registry. A
baseline is a history: its pinned and accepted runs, and the later runs that are samples too.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpubench_plugin.compare.baselines.last import last_runs
from gpubench_plugin.compare.baselines.model import RUN_ID, Reference
from gpubench_plugin.compare.baselines.samples import (
    LaterRuns,
    objections,
    pin_objections,
    remarks,
)
from gpubench_plugin.compare.baselines.store import Baselines
from gpubench_plugin.compare.matching import WINDOW
from gpubench_plugin.environment import listed
from gpubench_plugin.errors import GpubenchError, RegistryError, ResultsError, UsageProblem, nearest
from gpubench_plugin.records import LAST, Run
from gpubench_plugin.results import RunDirectory, StoredRun, find_run, load_run, runs_in
from gpubench_plugin.results.registry import Connection, connect

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import TypeAlias

    from gpubench_plugin.compare.baselines.model import Baseline
    from gpubench_plugin.records import Result
    from gpubench_plugin.results import RunOverview
    from gpubench_plugin.results.registry import Registry

    _Place: TypeAlias = tuple[str, str, str, str]  # benchmark, machine, clock, settings


def looks_like_run(text: str) -> bool:
    """Whether `text` is a path or a run id and hence no baseline name."""
    return _is_path(text) or RUN_ID.fullmatch(text) is not None


def _is_path(text: str) -> bool:
    return os.sep in text or text.endswith(".json")


class Resolver(ExitStack):
    """Resolution of texts; a context manager that opens the registry when it is first needed.

    Args:
        url: the registry's URL, ``none``, or empty for the default one.
        results_dir: where runs and baselines are.
        here: what a relative path is seen from.
    """

    def __init__(self, url: str, results_dir: Path, here: Path):
        super().__init__()
        self.results_dir = results_dir
        self._url = url
        self._here = here

    @cached_property
    def reached(self) -> Connection:
        """The registry, open until the end of the ``with`` block."""
        return self.enter_context(connect(self._url, self.results_dir))

    @property
    def registry(self) -> Registry | None:
        """The registry; raises RegistryError where it should answer and does not."""
        if self.reached.note:
            raise RegistryError(self.reached.note)
        return self.reached.registry

    def baselines(self) -> Baselines:
        """The baselines here and in the registry."""
        return Baselines(self.results_dir, self.reached.registry, unanswered=self.reached.note)

    def find(self, text: str) -> RunDirectory | RunOverview:
        """The folder of the run that `text` names; else what the registry tells of it.

        Raises:
            UsageProblem: no run is called so, or several are; so for all methods. Also where the
                registry does not answer, which others say.
        """
        try:
            return find_run(self.results_dir, text, cwd=self._here)
        except UsageProblem as problem:
            with suppress(RegistryError):
                return self._registered(text, problem)
            raise

    def candidate(self, text: str) -> Reference:
        """The run that is to be pinned, with what speaks against it and what is worth knowing.

        Raises:
            ResultsError: it cannot be read; so for the following methods.
        """
        place = self.find(text)
        if isinstance(place, RunDirectory):
            stored = StoredRun(place)
            run = stored.run()
            against = _objections(run, stored)
        else:
            run = self._stored(place)
            against = objections(run, int(place.regressed))
        return Reference(
            label=text,
            kind="single",
            runs=(run,),
            notes=tuple(remarks(run)),
            objections=(*against, *pin_objections(run)),
        )

    def single(self, text: str) -> Reference:
        """The run or the file that `text` names.

        Raises:
            RegistryError: it is not here, and the registry does not answer; so for the following.
        """
        try:
            run = load_run(text, results_dir=self.results_dir, cwd=self._here)
        except UsageProblem as problem:
            run = self._stored(self._registered(text, problem))
        return Reference(label=text, kind="single", runs=(run,))

    def run(self, text: str) -> Reference:
        """The run that `text` names, with lines about how it was found; its label is `text`.

        What is no path and no run here is looked for among the baselines, of which the first pinned
        run counts, and in the registry.
        """
        try:
            run = load_run(text, results_dir=self.results_dir, cwd=self._here)
        except UsageProblem as problem:
            if not text or _is_path(text) or (self._here / text).exists():
                raise
            return self._first_pinned(text, problem)
        return Reference(label=text, kind="single", runs=(run,))

    def reference(
        self, text: str, *, benchmarks: Collection[str], head: Run | None = None
    ) -> Reference:
        """What a run is compared with by ``--baseline``.

        A text with a folder separator, or that ends with ``.json``, is a path, one that begins as
        ids do a run's id or its beginning; any other is a baseline's name. :data:`.model.LAST` is
        the last comparable run, unless a baseline is called so from before.

        Args:
            text: as the user gave it.
            benchmarks: node ids that are to be judged; of others only the pinned runs tell.
            head: the run to be judged. It is never a sample, and of later runs only those are that
                have its fingerprints. Leave it out where all machines count.

        Raises:
            UsageProblem: also where it is the run to be judged itself.
        """
        if looks_like_run(text):
            single = self.single(text)
            if head is not None and single.run.run_id == head.run_id != "":
                raise UsageProblem(f"--baseline={text}: this is the run being judged")
            return single
        baselines = self.baselines()
        if (baseline := baselines.get(text)) is not None:
            history = _SampleCollector(baseline, self, benchmarks, head)
            return history.resolve_reference((*baselines.notes, *_shadow_warning(text)))
        if text == LAST and head is not None:
            return last_runs(head, results_dir=self.results_dir, connection=self.reached)
        return Reference(
            label=text,
            kind="missing",
            # The note of a registry that broke off stands in the message already.
            notes=(baselines.unknown(text), *(() if baselines.registry_error else baselines.notes)),
            registry_error=baselines.registry_error,
            typo_hint=baselines.typo_message(text),
        )

    def rested_on(self, baselines: Iterable[Baseline]) -> dict[str, str]:
        """Ids of all sample runs of `baselines`, each with one baseline's name."""
        names: dict[str, str] = {}
        for baseline in baselines:
            pinned = self.reference(baseline.name, benchmarks=())
            benchmarks = {benchmark for run in pinned.runs for benchmark in run.results}
            benchmarks |= {*baseline.acceptances}
            history = self.reference(baseline.name, benchmarks=benchmarks)
            names |= {run.run_id: baseline.name for run in history.runs}
        return names

    def _registered(self, text: str, problem: UsageProblem) -> RunOverview:
        """The run of the registry with the id `text`, or the only one anywhere that begins so.

        Raises:
            UsageProblem: the `problem`, where there is none.
            RegistryError: the registry does not answer.
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
        run = self.registry.run(overview.run_id) if self.registry is not None else None
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
            notes.append(
                f"baseline {text!r}: {run.run_id} stands in for the pinned run "
                f"{min(reference.pinned)}"
            )
        return Reference(
            label=text, kind="single", runs=(replace(run, label=label),), notes=tuple(notes)
        )


def directories_of(
    baseline: Baseline, results_dir: Path
) -> tuple[tuple[RunDirectory, str | None], ...]:
    """The folders below `results_dir` of the runs that set the level of `baseline`.

    An accepted one stands beside the only benchmark that it counts for, a pinned one beside None.
    """
    folders = {directory.run_id: directory for directory in runs_in(results_dir)}
    level: list[tuple[str, str | None]] = [(run, None) for run in sorted(baseline.runs)]
    level += [(accepted.run, accepted.benchmark) for accepted in baseline.acceptances.values()]
    return tuple((folders[run], only) for run, only in level if run in folders)


def _shadow_warning(name: str) -> Iterator[str]:
    """Warn that a baseline named like the keyword shadows the last run."""
    if name == LAST:
        yield (
            f"a baseline is named {LAST!r} and takes precedence over the last run; pin its "
            f"runs under another name, then: gpubench baseline rm {LAST}"
        )


def _objections(run: Run, stored: StoredRun) -> list[str]:
    try:
        return objections(run, len(stored.regressed))
    except ResultsError as error:
        return [*objections(run, 0), f"its verdicts cannot be read ({error})"]


class _SampleCollector:
    """Collects the samples of one baseline by run id.

    A run may give some of them as an anchor, and others as one of the later runs of the branch.
    """

    def __init__(
        self,
        baseline: Baseline,
        resolver: Resolver,
        benchmarks: Collection[str],
        head: Run | None,
    ):
        self._baseline = baseline
        self._resolver = resolver
        self._benchmarks = benchmarks
        self._head = head
        self._own_id = head.run_id if head is not None else ""
        self._accepted_runs = {n: a.run for n, a in baseline.acceptances.items() if n in benchmarks}
        self._last_pin = max(baseline.runs, default="")
        self._window = _Window(anchors=self._accepted_runs, since=self._last_pin, head=head)
        self._runs: dict[str, Run] = {}
        self._notes: list[str] = []
        self._registry_error = ""

    def resolve_reference(self, notes: Iterable[str]) -> Reference:
        for run in self._existing_runs(self._baseline.runs, "pinned"):
            self._add(self._window.take(run, pinned=True))
        for run in self._existing_runs(sorted(set(self._accepted_runs.values())), "accepted"):
            own_id = {name for name, anchor in self._accepted_runs.items() if anchor == run.run_id}
            existing = self._runs.get(run.run_id)
            self._add(self._window.take(run, only=own_id, but=existing.results if existing else ()))
        self._add_later()
        return Reference(
            label=self._baseline.name,
            kind="history",
            runs=tuple(self._runs[i] for i in sorted(self._runs)),
            pinned=self._baseline.runs,
            notes=(*notes, *self._notes),
            registry_error=self._registry_error,
        )

    def _add_later(self) -> None:
        branch = self._baseline.branch
        if branch is None:
            return
        source = LaterRuns(
            self._resolver.results_dir,
            self._resolver.reached,
            branch=branch,
            head=self._head,
            excluded_ids={self._own_id, *self._baseline.runs},
        )
        by_anchor: dict[str, list[str]] = {}
        for name in self._benchmarks:
            by_anchor.setdefault(self._accepted_runs.get(name, self._last_pin), []).append(name)
        for anchor, names in sorted(by_anchor.items()):
            for run in source.since(anchor, names):
                if self._window.full(names):
                    break
                existing = self._runs.get(run.run_id)
                self._add(
                    self._window.take(run, only=names, but=existing.results if existing else ())
                )
        self._notes += source.notes

    def _add(self, run: Run) -> None:
        existing = self._runs.get(run.run_id)
        if existing is not None:
            self._runs[run.run_id] = replace(existing, results={**existing.results, **run.results})
        elif run.results:
            self._runs[run.run_id] = run

    def _existing_runs(self, run_ids: Iterable[str], role: str) -> Iterator[Run]:
        """The runs that exist; the others are noted."""
        results_dir = self._resolver.results_dir
        folders = {d.run_id: d for d in runs_in(results_dir)}
        for run_id in run_ids:
            if run_id == self._own_id:
                self._notes.append(
                    f"{run_id} is {role}, but it is the run being judged and so not a sample"
                )
                continue
            try:
                run = StoredRun(folders[run_id]).run() if run_id in folders else None
            except GpubenchError as error:
                self._notes.append(f"the {role} run {run_id}: {error}")
                run = None
            problem_text = f"is missing: neither in {results_dir} nor in the registry"
            try:
                registry = None if run is not None else self._resolver.registry
                run = registry.run(run_id) if registry is not None else run
            except RegistryError as error:
                problem_text = (
                    f"is not in {results_dir}, and the registry could not be searched: {error}"
                )
                self._registry_error = str(error)
            if run is not None:
                yield run
            else:
                self._notes.append(
                    f"the {role} run {run_id} {problem_text}; it is not used as a sample"
                )


@dataclass(frozen=True, kw_only=True)
class _Window:
    """Selects sample results, taking anchors first and then runs oldest first.

    The samples of a benchmark are its first so many results from its anchor on. Those of pinned and
    accepted runs are the level that is judged by; later ones tell the noise. The window does not
    slide: its level is what somebody has vouched for.

    Args:
        anchors: the run id from which on a benchmark is sampled, by node id; a benchmark that is
            not named is sampled from `since` on.
        since: a run id.
        head: the run to be judged, or None; its fingerprints tell when there are enough samples.
    """

    anchors: Mapping[str, str]
    since: str
    head: Run | None = None
    _later: Counter[_Place] = field(default_factory=Counter)

    def take(
        self,
        run: Run,
        *,
        pinned: bool = False,
        only: Collection[str] | None = None,
        but: Collection[str] = (),
    ) -> Run:
        """`run` restricted to results that are samples, within `only` and outside `but`.

        Of a `pinned` run a benchmark that was not measured stays: it tells what once was there.
        """
        kept = {}
        machine = _text(run.machine)
        for name, result in run.results.items():
            if name in but or (only is not None and name not in only):
                continue
            place = _place(machine, result)
            level = self._is_level(name, run, pinned=pinned)
            if not self._is_after_anchor(name, run, pinned=pinned) or (
                self._later[place] >= WINDOW and not level
            ):
                continue
            if result.outcome == "measured":
                self._later[place] += not level
                kept[name] = replace(result, pinned=level)
            elif pinned:
                kept[name] = result
        return replace(run, results=kept)

    def _is_level(self, name: str, run: Run, *, pinned: bool) -> bool:
        """Whether the run sets the benchmark's level: accepted, else pinned."""
        anchor = self.anchors.get(name)
        return pinned if anchor is None else run.run_id == anchor

    def full(self, benchmarks: Collection[str]) -> bool:
        """Whether further runs cannot add samples for the head's `benchmarks`."""
        if self.head is None:
            return False
        machine = _text(self.head.machine)
        places = [
            _place(machine, self.head.results[name])
            for name in benchmarks
            if name in self.head.results
        ]
        return all(self._later[place] >= WINDOW for place in places)

    def _is_after_anchor(self, name: str, run: Run, *, pinned: bool) -> bool:
        anchor = self.anchors.get(name)
        if anchor is None:
            return pinned or run.run_id >= self.since
        return run.run_id >= anchor


def _place(machine: str, result: Result) -> _Place:
    return result.id, machine, result.timer, _text(result.settings)


def _text(facts: Mapping[str, Any]) -> str:
    """Canonical text of facts, as hashed in a fingerprint."""
    return json.dumps(dict(facts), sort_keys=True, default=str) if facts else ""


def the_benchmark(text: str, names: Iterable[str], scope: str) -> str:
    """Resolve `text` to one of `names`, by equality or substring; `scope` describes them.

    Raises:
        UsageProblem: it is a part of none, or of several; the message names them.
    """
    candidates = sorted(names)
    if text in candidates:
        return text
    matches = [name for name in candidates if text in name]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageProblem(
            f"{len(matches)} benchmarks of {scope} contain {text!r}: {listed(matches, most=10)}"
        )
    short = {name.rpartition("::")[2]: name for name in candidates}
    hint = nearest(text, candidates) or nearest(text, short)
    listing = f"; known: {listed(candidates, most=10)}" if candidates else "; there are none"
    raise UsageProblem(f"no benchmark of {scope} contains {text!r}{hint}{listing}")
