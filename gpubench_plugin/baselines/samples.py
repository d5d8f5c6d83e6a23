"""Samples of a baseline, which is a history: its pinned, accepted and later runs."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from gpubench_plugin.baselines.model import Reference
from gpubench_plugin.compare.comparability import is_same_machine
from gpubench_plugin.compare.matching import WINDOW
from gpubench_plugin.core.errors import GpubenchError, RegistryError
from gpubench_plugin.core.format import grouped
from gpubench_plugin.environment.fingerprints import fingerprint_of
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.registry.connection import Connection, connect
from gpubench_plugin.results.run_directory import runs_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from gpubench_plugin.baselines.model import Baseline
    from gpubench_plugin.core.records import Result, Run
    from gpubench_plugin.results.registry.registry import Registry

_OF_ANY_MACHINE: Final = 10 * WINDOW
"""Runs per benchmark without a head's fingerprint, for windows of ten machines."""


_INDEXING_S: Final = 60.0
"""For reading run directories where there is no registry: about 10,000 of few benchmarks."""


class KnownRuns(ExitStack):
    """Runs that can be found; a context manager that opens the registry when it is first needed.

    Args:
        url: the registry's URL, ``none``, or empty for the default one.
        results_dir: where runs and baselines are.
        here: what relative paths are relative to.
    """

    def __init__(self, url: str, results_dir: Path, here: Path):
        super().__init__()
        self.here = here
        self.results_dir = results_dir
        self.url = url
        self.index_notes: tuple[str, ...] = ()
        """What :attr:`index` lacks, for the user."""

    @cached_property
    def reached(self) -> Connection:
        """The registry, open until the end of the ``with`` block."""
        return self.enter_context(connect(self.url, self.results_dir))

    @property
    def registry(self) -> Registry | None:
        """The registry, if any; raises RegistryError if it cannot be reached."""
        if self.reached.error:
            raise RegistryError(self.reached.error)
        return self.reached.registry

    @cached_property
    def index(self) -> Registry:
        """The registry; where there is none, the run directories, indexed in memory."""
        reached = self.reached
        if reached.registry is not None:
            self.index_notes = reached.notes
            return reached.registry
        from gpubench_plugin.results.registry.registry import Registry

        registry = self.enter_context(Registry.of_directories(self.results_dir))
        report = registry.ingest_all(limit_s=_INDEXING_S)
        unavailable = f"registry unavailable, only runs in {self.results_dir} are considered: "
        left = f"the {report.left} oldest runs were not read; a registry has them all"
        self.index_notes = (
            *((unavailable + reached.error,) if reached.error else ()),
            *(f"skipped: {error}" for error in report.errors),
            *((left,) if report.left else ()),
        )
        return registry


@dataclass
class SampleCollector:
    """Collects the samples of one baseline by run id.

    A run may be an anchor for some benchmarks, and a later run of the branch for others.
    """

    baseline: Baseline
    known: KnownRuns
    benchmarks: Collection[str]
    head: Run | None
    _runs: dict[str, Run] = field(default_factory=dict)
    _notes: list[str] = field(default_factory=list)
    _later: Counter[tuple[str, str]] = field(default_factory=Counter)
    _registry_error: str = ""

    def __post_init__(self) -> None:
        accepted = self.baseline.accepted_runs
        self._accepted_runs = {name: accepted[name] for name in self.benchmarks if name in accepted}
        self._own_id = self.head.run_id if self.head is not None else ""
        self._last_pin = max(self.baseline.runs, default="")

    def reference(self) -> Reference:
        """The reference, with notes on its samples."""
        for run in self._existing_runs(self.baseline.runs, "pinned"):
            self._add(run, run.results, pinned=True)
        for run in self._existing_runs(sorted(set(self._accepted_runs.values())), "accepted"):
            names = [name for name, anchor in self._accepted_runs.items() if anchor == run.run_id]
            self._add(run, names)
        self._add_later()
        return Reference(
            label=self.baseline.name,
            kind="history",
            runs=tuple(self._runs[i] for i in sorted(self._runs)),
            pinned=self.baseline.runs,
            notes=tuple(self._notes),
            registry_error=self._registry_error,
        )

    def _add_later(self) -> None:
        branch = self.baseline.branch
        if branch is None:
            return
        anchors = ((self._accepted_runs.get(n, self._last_pin), n) for n in self.benchmarks)
        for anchor, names in sorted(grouped(anchors).items()):
            for run in self.later_runs(anchor, names, branch):
                self._add(run, names)
        if self.head is not None:
            self._add_lost(self.head, branch)
        self._notes += self.known.index_notes

    def later_runs(self, run_id: str, benchmarks: Collection[str], branch: str) -> list[Run]:
        """Runs of the branch from `run_id` on with any of `benchmarks`, restricted to those.

        Complete and clean ones without regressions, oldest first; with the machine and the clocks
        of the head, if there is one.
        """
        excluded = {self._own_id, *self.baseline.runs}
        fingerprints: dict[str, str] = {}
        if self.head is not None:
            results = (self.head.results.get(name) for name in benchmarks)
            fingerprints = dict(_series_key(self.head, r) for r in results if r and r.timer)
        runs = self.known.index.earlier(
            benchmarks,
            branch=branch,
            since=run_id,
            limit=len(excluded) + (WINDOW if fingerprints else _OF_ANY_MACHINE),
            fingerprints=fingerprints,
        )
        return [run for run in runs if run.run_id not in excluded]

    def _add_lost(self, head: Run, branch: str) -> None:
        """Add what the head lacks of the branch's latest clean run of its machine."""
        for overview in self.known.index.runs(branch=branch, limit=WINDOW):
            usable = overview.state == "complete" and not overview.dirty
            if usable and not overview.error and overview.started < head.started:
                run = self.known.index.run(overview.run_id)
                if run is not None and is_same_machine(run, head):
                    lost = {n: run.results[n] for n in run.measured - head.results.keys()}
                    known = self._runs.get(run.run_id, replace(run, results={}))
                    if lost:
                        self._runs[run.run_id] = replace(run, results={**lost, **known.results})
                    return

    def _add(self, run: Run, names: Collection[str], *, pinned: bool = False) -> None:
        """Add samples of the benchmarks `names` that the run has not given yet.

        Those of a benchmark are its first results from its anchor on: of pinned and accepted runs
        they are the level, of later ones the noise. The window does not slide, so that its level
        stays the confirmed one. A `pinned` run keeps benchmarks that it did not measure, to show
        what existed.
        """
        known = self._runs[run.run_id].results if run.run_id in self._runs else {}
        added = {}
        for name, result in run.results.items():
            if name not in names or name in known:
                continue
            key = _series_key(run, result)
            anchor = self._accepted_runs.get(name)
            # The run sets the benchmark's level if it was accepted, else if it is pinned.
            level = pinned if anchor is None else run.run_id == anchor
            is_before = run.run_id < (anchor or self._last_pin) and not (pinned and anchor is None)
            if is_before or (self._later[key] >= WINDOW and not level):
                continue
            if result.outcome == "measured":
                self._later[key] += not level
                added[name] = replace(result, pinned=level)
            elif pinned:
                added[name] = result
        if known or added:
            self._runs[run.run_id] = replace(run, results={**known, **added})

    def _existing_runs(self, run_ids: Iterable[str], role: str) -> Iterator[Run]:
        """The runs that exist, with a note for each missing one."""
        results_dir = self.known.results_dir
        folders = {d.run_id: d for d in runs_in(results_dir)}
        for run_id in run_ids:
            if run_id == self._own_id:
                cause = "it is the run being judged and so not a sample"
                self._notes.append(f"{run_id} is {role}, but {cause}")
                continue
            run, problem = None, f"is missing: neither in {results_dir} nor in the registry"
            try:
                if run_id in folders:  # what the registry has would hide the damage of a broken one
                    run = RunReader(folders[run_id]).run()
                elif (registry := self.known.registry) is not None:
                    run = registry.run(run_id)
            except RegistryError as error:
                problem = (
                    f"is not in {results_dir}, and the registry could not be searched: {error}"
                )
                self._registry_error = str(error)
            except GpubenchError as error:
                problem = f"cannot be read: {error}"
            if run is not None:
                yield run
            else:
                self._notes.append(f"the {role} run {run_id} {problem}; it is not used as a sample")


def _series_key(run: Run, result: Result) -> tuple[str, str]:
    return result.id, fingerprint_of(run.machine_of(result), result.settings, result.timer)
