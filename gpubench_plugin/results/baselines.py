"""Baselines: the runs a name stands for, one file each, shared through the registry.

The files ``<results>/baselines/<name>.json`` are the truth. The registry holds a copy of each, so
that other machines share it; of a file and a copy, the one that was changed later counts. Nothing
changes a baseline but an explicit act, and the file keeps when and why each one happened.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from gpubench_plugin.errors import RegistryError, ResultsError, UsageProblem, nearest
from gpubench_plugin.results import atomic
from gpubench_plugin.results.baseline import Acceptance, Baseline, Change, baseline_name
from gpubench_plugin.results.journal import utc_now
from gpubench_plugin.results.locking import locked
from gpubench_plugin.results.run_id import path_component

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from gpubench_plugin.results.registry.registry import Registry

KIND: Final = "baseline"
"""What baselines are called among the registry's documents."""


class Baselines:
    """The baselines of a results folder, and their copies in `registry`, if there is one.

    A registry that does not answer costs nothing but the sharing: `notes` then says so, in a line
    for the user.
    """

    def __init__(
        self,
        results_dir: Path,
        registry: Registry | None = None,
        *,
        now: Callable[[], str] = utc_now,
    ):
        self.folder = results_dir / "baselines"
        self.notes: list[str] = []
        self._registry = registry
        self._now = now

    def names(self) -> tuple[str, ...]:
        """The names of the baselines there are, sorted; of a broken file as well."""
        shared = self._copies()
        return tuple(sorted(n for n in {*self._files(), *shared} if self._stands(n, shared)))

    def get(self, name: str) -> Baseline | None:
        """The baseline called so, or None.

        Raises:
            ResultsError: its file, or its copy in the registry, cannot be read, or is newer than
                this version knows.
        """
        found = self._latest(name, self._copies())
        return None if found is None or found.removed else found

    def expect(self, name: str) -> Baseline:
        """The baseline called so.

        Raises:
            UsageProblem: there is none; the message names those there are.
            ResultsError: as :meth:`get`.
        """
        if (found := self.get(name)) is not None:
            return found
        raise UsageProblem(self.unknown(name))

    def unknown(self, name: str) -> str:
        """The message that no baseline is called `name`, with those there are."""
        names = self.names()
        there = f"there are: {', '.join(names)}" if names else "there is none yet"
        return f"no baseline is called {name!r}{nearest(name, names)}; {there}"

    def set(
        self,
        name: str,
        runs: Sequence[str],
        *,
        branch: str | None,
        reason: str = "",
        forced: Sequence[str] = (),
    ) -> Baseline:
        """Pin `runs` under `name`; earlier pins and acceptances of it no longer count.

        Raises:
            UsageProblem: the name cannot be one.
            ResultsError: the file could not be written, or what stands there not be read.
        """
        pinned = tuple(sorted(set(runs)))

        def change(old: Baseline | None, time: str) -> Baseline:
            act = Change(
                time=time,
                action="set",
                runs=pinned,
                branch=branch,
                reason=reason,
                forced=tuple(forced),
            )
            changes = (*(old.changes if old else ()), act)
            return Baseline(name=name, runs=pinned, branch=branch, changed=time, changes=changes)

        return self._change(baseline_name(name), change)

    def accept(self, name: str, run: str, benchmark: str, *, reason: str) -> Baseline:
        """Let `benchmark` have its accepted level from `run` on.

        Raises:
            UsageProblem: there is no such baseline, or no reason.
            ResultsError: as :meth:`set`.
        """
        if not reason.strip():
            raise UsageProblem("--reason: empty; allowed: a text that says why it is accepted")

        def change(old: Baseline | None, time: str) -> Baseline:
            kept = self._standing(old, name)
            one = Acceptance(benchmark=benchmark, run=run, time=time, reason=reason)
            act = Change(
                time=time,
                action="accept",
                runs=(run,),
                branch=kept.branch,
                benchmark=benchmark,
                reason=reason,
            )
            return replace(
                kept,
                acceptances={**kept.acceptances, benchmark: one},
                changed=time,
                changes=(*kept.changes, act),
            )

        return self._change(name, change)

    def remove(self, name: str, *, reason: str = "") -> Baseline:
        """Let `name` stand for nothing; its file stays and says so.

        Raises:
            UsageProblem: there is no such baseline.
            ResultsError: as :meth:`set`.
        """

        def change(old: Baseline | None, time: str) -> Baseline:
            kept = self._standing(old, name)
            act = Change(time=time, action="remove", runs=kept.runs, branch=None, reason=reason)
            return Baseline(
                name=name,
                runs=(),
                branch=None,
                changed=time,
                removed=True,
                changes=(*kept.changes, act),
            )

        return self._change(name, change)

    def kept_runs(self) -> dict[str, tuple[str, ...]]:
        """The ids of all runs that baselines rest on, each with the baselines' names.

        Raises:
            ResultsError: a baseline cannot be read, so nobody knows what it rests on.
        """
        kept: dict[str, tuple[str, ...]] = {}
        shared = self._copies()
        for name in sorted({*self._files(), *shared}):
            found = self._latest(name, shared)
            for run in found.kept if found else ():
                kept[run] = (*kept.get(run, ()), name)
        return kept

    def _standing(self, found: Baseline | None, name: str) -> Baseline:
        if found is None or found.removed:
            raise UsageProblem(self.unknown(name))
        return found

    def _stands(self, name: str, shared: Mapping[str, str]) -> bool:
        try:
            found = self._latest(name, shared)
        except ResultsError:
            return True
        return found is not None and not found.removed

    def _change(self, name: str, change: Callable[[Baseline | None, str], Baseline]) -> Baseline:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise atomic.not_written(self.folder, error) from error
        with locked(self.folder):
            old = self._latest(name, self._copies())
            new = change(old, _later(self._now(), old.changed if old else ""))
            text = _to_text(new)
            atomic.write_text(self._path(name), text)
        self._share(new, text)
        return new

    def _latest(self, name: str, shared: Mapping[str, str]) -> Baseline | None:
        """The file or the registry's copy, whichever was changed later; also a removed one."""
        file = self._read(name)
        copy = (
            _from_text(shared[name], f"baseline {name!r} in the registry")
            if name in shared
            else None
        )
        if file is None or (copy is not None and copy.changed > file.changed):
            return copy
        if self._registry is not None and (copy is None or copy.changed < file.changed):
            self._share(file, _to_text(file))
        return file

    def _read(self, name: str) -> Baseline | None:
        path = self._path(name)
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ResultsError(f"{path} cannot be read: {error.strerror}") from error
        return _from_text(text, str(path))

    def _path(self, name: str) -> Path:
        return self.folder / f"{path_component('baseline', name)}.json"

    def _files(self) -> list[str]:
        paths = self.folder.glob("*.json") if self.folder.is_dir() else ()
        return [path.stem for path in paths if not path.name.startswith(".")]

    def _copies(self) -> Mapping[str, str]:
        if self._registry is None:
            return {}
        try:
            return self._registry.documents(KIND)
        except RegistryError as error:
            self._without_registry(f"baselines of other machines are not seen: {error}")
            return {}

    def _share(self, baseline: Baseline, text: str) -> None:
        if self._registry is None:
            return
        try:
            self._registry.put_document(KIND, baseline.name, text, baseline.changed)
        except RegistryError as error:
            self._without_registry(
                f"{self._path(baseline.name)} was written, but other machines do not see it until "
                f"the registry can be reached again: {error}"
            )

    def _without_registry(self, note: str) -> None:
        self._registry = None
        self.notes.append(note)


def _later(now: str, than: str) -> str:
    """`now`, or the first moment later `than` another machine's clock, if that is ahead."""
    if now > than:
        return now
    moment = datetime.fromisoformat(than) + timedelta(microseconds=1)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _to_text(baseline: Baseline) -> str:
    from gpubench_plugin.results import baseline_document

    return baseline_document.to_text(baseline)


def _from_text(text: str | bytes, where: str) -> Baseline:
    from gpubench_plugin.results import baseline_document

    return baseline_document.from_text(text, where)
