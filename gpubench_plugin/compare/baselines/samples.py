"""The samples of a baseline: which later runs qualify, and which of their results count.

Later runs come from the registry, or else from their folders.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.compare.baselines.lookup import objections, regressions
from gpubench_plugin.compare.matching import WINDOW
from gpubench_plugin.environment import fingerprint_of
from gpubench_plugin.errors import GpubenchError, RegistryError
from gpubench_plugin.results import run_in, runs_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path
    from typing import TypeAlias

    from gpubench_plugin.records import Result, Run
    from gpubench_plugin.results import RunDirectory
    from gpubench_plugin.results.registry import Reachable, Registry

    _Place: TypeAlias = tuple[str, str, str, str]  # benchmark, machine, clock, settings


LOOKED_AT: Final = 1000
"""Folders that are read, at most, where there is no registry."""

_OF_ANY_MACHINE: Final = 10 * WINDOW
"""Runs per benchmark that the registry is asked for where no head tells its fingerprint."""


class LaterRuns:
    """The complete, clean, not regressed runs of a branch, the oldest first.

    `skipped` are ids of runs that are not wanted. `notes` says where the runs came from where that
    is not the registry, and which folder could not be read.
    """

    def __init__(
        self,
        results_dir: Path,
        reached: Reachable,
        *,
        branch: str,
        head: Run | None,
        skipped: Collection[str],
    ):
        self.notes: list[str] = []
        self._results_dir = results_dir
        self._registry: Registry | None = reached.registry
        self._branch = branch
        self._head = head
        self._skipped = frozenset(skipped)
        self._read: dict[str, Run | None] = {}
        if reached.note:
            self._fall_back(reached.note)

    def since(self, run_id: str, benchmarks: Collection[str]) -> Iterator[Run]:
        """Those from `run_id` on that have one of `benchmarks`; others in them do not count."""
        if self._registry is not None:
            try:
                found = self._registered(self._registry, run_id, benchmarks)
            except RegistryError as error:
                self._fall_back(str(error))
            else:
                yield from (run for run in found if run.run_id not in self._skipped)
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
            limit=len(self._skipped) + (WINDOW if fingerprints else _OF_ANY_MACHINE),
            fingerprints=fingerprints,
        )

    def _in_folders(self, run_id: str) -> Iterator[Run]:
        later = [d for d in runs_in(self._results_dir) if d.run_id >= run_id]
        if len(later) > LOOKED_AT:
            self.notes.append(
                f"only the first {LOOKED_AT} runs after its pin were looked at; a registry looks "
                "at all"
            )
        for directory in later[:LOOKED_AT]:
            if directory.run_id in self._skipped:
                continue
            if directory.run_id not in self._read:
                self._read[directory.run_id] = self._fitting(directory)
            if (run := self._read[directory.run_id]) is not None:
                yield run

    def _fitting(self, directory: RunDirectory) -> Run | None:
        try:
            run = run_in(directory)
            fit = run.branch == self._branch and not objections(run, regressions(directory))
        except GpubenchError as error:
            self.notes.append(f"left out: {error}")
            return None
        return run if fit else None

    def _fall_back(self, reason: str) -> None:
        self._registry = None
        self.notes.append(
            f"without the registry, only the runs in {self._results_dir} are seen: {reason}"
        )


def _fingerprints(head: Run, benchmarks: Collection[str]) -> Iterator[tuple[str, str]]:
    """Of those that the head has measured: no other one tells its clock."""
    for name in benchmarks:
        result = head.results.get(name)
        if result is not None and result.timer:
            yield name, fingerprint_of(head.machine, result.settings, result.timer)


@dataclass(frozen=True, kw_only=True)
class Window:
    """Takes runs, the anchors first and the others oldest first, and keeps what is a sample.

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
        """`run` with those of its results that are samples; of `only` these, and none of `but`.

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
        """Whether the run is what the benchmark's level was set by: accepted, else pinned."""
        anchor = self.anchors.get(name)
        return pinned if anchor is None else run.run_id == anchor

    def full(self, benchmarks: Collection[str]) -> bool:
        """Whether no further run can add a sample that the head's `benchmarks` are judged by."""
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
    """Equal for equal facts: what a fingerprint is made of, without its hash."""
    return json.dumps(dict(facts), sort_keys=True, default=str) if facts else ""
