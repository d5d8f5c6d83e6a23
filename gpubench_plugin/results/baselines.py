"""Baselines: the runs a name stands for, one file each, shared through the registry.

The files ``<results>/baselines/<name>.json`` are the truth. The registry holds a copy of each, so
that other machines share it; of a file and a copy, the one that was changed later counts. Nothing
changes a baseline but an explicit act, and the file keeps when and why each one happened.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from gpubench_plugin.errors import (
    GpubenchError,
    RegistryError,
    ResultsError,
    UsageProblem,
    nearest,
)
from gpubench_plugin.results import atomic
from gpubench_plugin.results.baseline import Acceptance, Baseline, Change, baseline_name
from gpubench_plugin.results.baseline_files import BaselineFiles, from_text, to_text
from gpubench_plugin.results.journal import utc_now
from gpubench_plugin.results.locking import locked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from gpubench_plugin.results.registry.registry import Registry

KIND: Final = "baseline"
"""What baselines are called among the registry's documents."""


class Baselines:
    """The baselines of a results folder, and their copies in `registry`, if there is one.

    A registry that does not answer costs nothing but the sharing: `notes` then says so, in a line
    for the user. `unanswered` is why it does not answer, empty where it does or none is expected;
    then nobody knows whether a name that has no file here has a baseline.
    """

    def __init__(
        self,
        results_dir: Path,
        registry: Registry | None = None,
        *,
        unanswered: str = "",
        now: Callable[[], str] = utc_now,
    ):
        self.folder = results_dir / "baselines"
        self.notes: list[str] = []
        self.unanswered = unanswered
        self._files = BaselineFiles(self.folder)
        self._registry = registry
        self._now = now

    def names(self) -> tuple[str, ...]:
        """The names of the baselines there are, sorted; of a broken file as well."""
        shared = self._copies()
        return tuple(sorted(n for n in {*self._files.names(), *shared} if self._stands(n, shared)))

    def get(self, name: str) -> Baseline | None:
        """The baseline called so; None where none is known, see `unanswered`.

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
            RegistryError: there is none here, and the registry does not answer.
            ResultsError: as :meth:`get`.
        """
        if (found := self.get(name)) is not None:
            return found
        raise self._missing(name)

    def stands(self, name: str) -> bool:
        """Whether there is a baseline called so.

        Raises:
            RegistryError: none is known, and the registry does not answer.
            ResultsError: as :meth:`get`.
        """
        if self.get(name) is not None:
            return True
        if self.unanswered:
            raise self._missing(name)
        return False

    def unknown(self, name: str) -> str:
        """The message that no baseline is called `name`, or that nobody knows it."""
        if self.unanswered:
            return f"whether there is a baseline {name!r} is not known: {self.unanswered}"
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
        if_missing: bool = False,
    ) -> Baseline:
        """Pin `runs` under `name`; earlier pins and acceptances of it no longer count.

        With `if_missing` a baseline that stands is left as it is, and returned.

        Raises:
            UsageProblem: the name cannot be one.
            RegistryError: with `if_missing`, nobody knows whether there is one.
            ResultsError: the file could not be written, or what stands there not be read.
        """
        pinned = tuple(sorted(set(runs)))

        def change(old: Baseline | None, time: str) -> Baseline:
            if if_missing and old is not None and not old.removed:
                return old
            if if_missing and self.unanswered:
                raise self._missing(name)
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
            RegistryError: as :meth:`expect`.
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
            RegistryError: as :meth:`expect`.
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
        for name in sorted({*self._files.names(), *shared}):
            found = self._latest(name, shared)
            for run in found.kept if found else ():
                kept[run] = (*kept.get(run, ()), name)
        return kept

    def _standing(self, found: Baseline | None, name: str) -> Baseline:
        if found is None or found.removed:
            raise self._missing(name)
        return found

    def _missing(self, name: str) -> GpubenchError:
        return (RegistryError if self.unanswered else UsageProblem)(self.unknown(name))

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
            if new is old:
                return new
            text = to_text(new)
            atomic.write_text(self._files.path(name), text)
        self._share(new, text)
        return new

    def _latest(self, name: str, shared: Mapping[str, str]) -> Baseline | None:
        """The file or the registry's copy, whichever was changed later; also a removed one."""
        file = self._files.read(name)
        copy = (
            from_text(shared[name], f"baseline {name!r} in the registry")
            if name in shared
            else None
        )
        if file is None or (copy is not None and copy.changed > file.changed):
            return copy
        if self._registry is not None and (copy is None or copy.changed < file.changed):
            self._share(file, to_text(file))
        return file

    def _copies(self) -> Mapping[str, str]:
        if self._registry is None:
            return {}
        try:
            return self._registry.documents(KIND)
        except RegistryError as error:
            self._without_registry(f"baselines of other machines are not seen: {error}")
            self.unanswered = str(error)
            return {}

    def _share(self, baseline: Baseline, text: str) -> None:
        if self._registry is None:
            return
        try:
            self._registry.put_document(KIND, baseline.name, text, baseline.changed)
        except RegistryError as error:
            self._without_registry(
                f"{self._files.path(baseline.name)} was written, but other machines do not see it "
                f"until the registry can be reached again: {error}"
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
