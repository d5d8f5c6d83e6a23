"""The store of baselines: one file per name, shared between machines through the registry.

The files ``<results>/baselines/<name>.json`` are the truth. The registry holds a copy of each, so
that other machines share it; a file and a copy are merged, change by change. Nothing changes a
baseline but an explicit act, and the file keeps when and why each one happened.
"""

from __future__ import annotations

import re
import secrets
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.compare.baselines.model import (
    Baseline,
    Change,
    Merge,
    baseline_name,
    from_text,
    merged,
    overruled,
    replayed,
    to_text,
)
from gpubench_plugin.environment import files, json_files, locked
from gpubench_plugin.errors import GpubenchError, RegistryError, ResultsError, UsageProblem, nearest
from gpubench_plugin.results import is_path_component, path_component, time_after, utc_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from sqlalchemy import Connection

    from gpubench_plugin.results.registry import Registry, Report


@dataclass(frozen=True)
class BaselineFiles:
    """The files of baselines in `folder`, which need not exist."""

    folder: Path

    def names(self) -> list[str]:
        """The names of the files there are, also of broken ones and of removed baselines."""
        return [path.stem for path in self._paths() if is_path_component(path.stem)]

    def strays(self) -> list[str]:
        """Lines on files that no baseline can have, as ``main copy.json``: they are left out."""
        return [
            f"{path} is left out: no baseline can be called {path.stem!r}"
            for path in sorted(self._paths())
            if not is_path_component(path.stem)
        ]

    def _paths(self) -> list[Path]:
        paths = self.folder.glob("*.json") if self.folder.is_dir() else ()
        return [path for path in paths if not path.name.startswith(".")]

    def path(self, name: str) -> Path:
        """The file of the baseline called so; raises UsageProblem where none can be."""
        return self.folder / f"{path_component('baseline', name)}.json"

    def read(self, name: str) -> Baseline | None:
        """What the file says, None where there is none; raises ResultsError."""
        path = self.path(name)
        try:
            text = files.read(path, limit=json_files.LIMIT_OF_FACTS_BYTES)
        except FileNotFoundError:
            return None
        return from_text(text, str(path))


def from_copy(name: str, text: str) -> Baseline:
    """The baseline in the text of the registry's copy; raises ResultsError."""
    return from_text(text, f"baseline {name!r} in the registry")


def merge_files(connection: Connection, results_dir: Path, report: Report) -> None:
    """Merge the files of baselines below `results_dir` into the copies that are stored.

    What goes wrong with one of them is in `report`; the others are merged all the same.
    """
    files = BaselineFiles(results_dir / "baselines")
    report.notes += files.strays()
    for name in sorted(files.names()):
        try:
            _merge_file(connection, files, name)
        except GpubenchError as error:
            report.problems.append(str(error))


def _merge_file(connection: Connection, files: BaselineFiles, name: str) -> None:
    """Merge the baseline in a file into the copy that is stored, if there is one.

    Raises:
        UsageProblem, ResultsError: no baseline can be called so, or one of both cannot be read.
    """
    from gpubench_plugin.results.registry import documents

    def here() -> AbstractContextManager[Connection]:
        return nullcontext(connection)

    baseline = files.read(name)
    if baseline is not None:
        documents.merge(here, here, KIND, name, partial(merged_copy, baseline))


def merged_copy(baseline: Baseline, copy: str | None) -> tuple[str, str]:
    """The text of the registry's copy once `baseline` is merged into it, and its last change.

    It is the same text where `baseline` has no change that the copy has not.

    Raises:
        ResultsError: the copy cannot be read, or is newer than this version knows.
    """
    if copy is None:
        return to_text(baseline), baseline.changed
    stored = from_copy(baseline.name, copy)
    both = merged(baseline, stored).baseline
    return (copy if both == stored else to_text(both)), both.changed


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
        return tuple(name for name in self._every(shared) if self._is_listed(name, shared))

    def the_only(self) -> str:
        """The name of the only baseline, for a command that was given none.

        Raises:
            UsageProblem: there is none, or there are several.
            RegistryError: there is none here, and the registry does not answer.
        """
        names = self.names()
        if len(names) > 1:
            raise UsageProblem(f"--baseline: there are several, name one: {', '.join(names)}")
        if not names and self.unanswered:
            raise RegistryError(f"which baselines there are is not known: {self.unanswered}")
        if not names:
            raise UsageProblem(
                "--baseline: there is no baseline yet; make one: gpubench baseline set"
            )
        return names[0]

    def get(self, name: str) -> Baseline | None:
        """The baseline called so; None where none is known, see `unanswered`.

        Raises:
            ResultsError: its file, or its copy in the registry, cannot be read, or is newer than
                this version knows.
        """
        found = self._settled(name, self._copies())
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

    def slip(self, name: str) -> str:
        """The message that `name` is likely a slip for another baseline's; else empty.

        One that was a baseline once is none. This only looks: nothing is merged.
        """
        shared = self._copies()
        known = {*self._files.names(), *shared}
        if self.unanswered or name in known:
            return ""
        near = near_miss(name, (other for other in known if self._stands(other, shared)))
        if near is None:
            return ""
        return (
            f"no baseline is called {name!r} (did you mean {near!r}?); if it is to be a new one, "
            f"make it first: gpubench baseline set {name} RUN"
        )

    def set(
        self,
        name: str,
        runs: Sequence[str],
        *,
        branch: str | None,
        reason: str = "",
        forced: Sequence[str] = (),
        reset_accepted: bool = False,
        if_missing: bool = False,
    ) -> Baseline:
        """Pin `runs` under `name`; earlier pins no longer count, accepted levels stay.

        With `reset_accepted` those no longer count either. With `if_missing` a baseline that
        stands is left as it is, and returned.

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
            return _after(
                old,
                name,
                time=time,
                action="set",
                runs=pinned,
                branch=branch,
                reason=reason,
                forced=tuple(forced),
                reset_accepted=reset_accepted,
            )

        return self._change(baseline_name(name), change, may_be_overruled=if_missing)

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
            standing = self._standing(old, name)
            return _after(
                standing,
                name,
                time=time,
                action="accept",
                runs=(run,),
                branch=standing.branch,
                benchmark=benchmark,
                reason=reason,
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
            runs = self._standing(old, name).runs
            return _after(
                old, name, time=time, action="remove", runs=runs, branch=None, reason=reason
            )

        return self._change(name, change)

    def kept_runs(self) -> dict[str, tuple[str, ...]]:
        """The ids of all runs that baselines rest on, each with the baselines' names.

        Raises:
            ResultsError: a baseline cannot be read, so nobody knows what it rests on.
        """
        kept: dict[str, tuple[str, ...]] = {}
        shared = self._copies()
        for name in self._every(shared):
            found = self._settled(name, shared)
            for run in found.kept if found else ():
                kept[run] = (*kept.get(run, ()), name)
        return kept

    def _every(self, shared: Mapping[str, str]) -> list[str]:
        """The names of all files and copies, also of broken and removed ones."""
        self._note(self._files.strays())
        return sorted({*self._files.names(), *shared})

    def _is_listed(self, name: str, shared: Mapping[str, str]) -> bool:
        try:
            found = self._settled(name, shared)
        except ResultsError:
            return True
        return found is not None and not found.removed

    def _standing(self, found: Baseline | None, name: str) -> Baseline:
        if found is None or found.removed:
            raise self._missing(name)
        return found

    def _missing(self, name: str) -> GpubenchError:
        return (RegistryError if self.unanswered else UsageProblem)(self.unknown(name))

    def _stands(self, name: str, shared: Mapping[str, str]) -> bool:
        """Whether it does, or is broken."""
        try:
            merge = self._merge(name, shared)
        except ResultsError:
            return True
        return merge is not None and not merge.baseline.removed

    def _change(
        self,
        name: str,
        change: Callable[[Baseline | None, str], Baseline],
        *,
        may_be_overruled: bool = False,
    ) -> Baseline:
        """Write what `change` makes of the baseline, which it gets with the time of the act.

        Others may change it at the same time; all of it is kept, and :func:`.model.replayed` says
        what counts.

        Raises:
            ResultsError: of two acts that contradict each other, this is not the one that counts.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise json_files.not_written(self.folder, error) from error
        with locked(self.folder):
            old = self._merged(name, self._copies())
            new = change(old, time_after(old.changed if old else "", self._now()))
            if new is not old:
                json_files.write_text(self._files.path(name), to_text(new))
        if new is old:
            self._catch_up(new)
            return new
        merge = self._shared(new)
        self._catch_up(merge.baseline)
        reasons = dict(merge.overruled)
        own = "" if may_be_overruled else reasons.pop(new.changes[-1], "")
        self._note(reasons.values())
        if own:
            raise ResultsError(own)
        return merge.baseline

    def _settled(self, name: str, shared: Mapping[str, str]) -> Baseline | None:
        """What the file and the copy make together, and are from now on; also a removed one."""
        found = self._merged(name, shared)
        if found is not None:
            self._catch_up(found)
        return found

    def _catch_up(self, baseline: Baseline) -> None:
        """Give the file, where there is one, the changes that only `baseline` has.

        Without the registry it would else be judged by what others have long overruled.
        """
        if not self._is_behind(baseline):
            return
        path = self._files.path(baseline.name)
        try:
            with locked(self.folder):
                file = self._files.read(baseline.name)
                both = baseline if file is None else merged(file, baseline).baseline
                json_files.write_text(path, to_text(both))
        except ResultsError as error:
            self._note([f"{path} lacks what others changed: {error}"])

    def _is_behind(self, baseline: Baseline) -> bool:
        file = self._files.read(baseline.name)
        return file is not None and not {*baseline.changes} <= {*file.changes}

    def _merged(self, name: str, shared: Mapping[str, str]) -> Baseline | None:
        """What the file and the registry's copy make together, which is the copy from now on."""
        merge = self._merge(name, shared)
        if merge is None:
            return None
        self._note(merge.overruled.values())
        both = merge.baseline
        if name in shared and from_copy(name, shared[name]) == both:
            return both
        return self._shared(both).baseline

    def _merge(self, name: str, shared: Mapping[str, str]) -> Merge | None:
        """What the file and the registry's copy make together, where there is one of them."""
        file = self._files.read(name)
        copy = from_copy(name, shared[name]) if name in shared else None
        if file is None or copy is None:
            alone = file or copy
            return None if alone is None else Merge(baseline=alone, overruled={})
        if {*file.changes} <= {*copy.changes}:
            return Merge(baseline=copy, overruled=overruled(file, copy))
        return merged(file, copy)

    def _copies(self) -> Mapping[str, str]:
        if self._registry is None:
            return {}
        try:
            return self._registry.documents(KIND)
        except RegistryError as error:
            self._without_registry(f"baselines of other machines are not seen: {error}")
            self.unanswered = str(error)
            return {}

    def _shared(self, baseline: Baseline) -> Merge:
        """What `baseline` and the registry's copy make together, which is the copy from now on."""
        alone = Merge(baseline=baseline, overruled={})
        if self._registry is None:
            return alone
        try:
            copy = self._registry.merge_document(
                KIND, baseline.name, partial(merged_copy, baseline)
            )
        except RegistryError as error:
            self._without_registry(
                f"{self._files.path(baseline.name)} was written, but other machines do not see it "
                f"until the registry can be reached again: {error}"
            )
            return alone
        return alone if copy is None else merged(baseline, from_copy(baseline.name, copy))

    def _without_registry(self, note: str) -> None:
        self._registry = None
        self._note([note])

    def _note(self, lines: Iterable[str]) -> None:
        """Keep `lines` for the user, each once."""
        self.notes += [line for line in dict.fromkeys(lines) if line not in self.notes]


def _after(old: Baseline | None, name: str, **act: Any) -> Baseline:
    """What the name stands for after one more :class:`.model.Change`, which `act` are fields of."""
    change = Change(id=secrets.token_hex(6), **act)
    return replayed(name, (*(old.changes if old else ()), change))


_SEPARATOR: Final = re.compile(r"([-.])")

_SWAPPED: Final = 4
"""Letters from which on a word can have two swapped: ``mian``, but not ``tp`` and ``pt``."""

_ADDED: Final = 5
"""Letters from which on one of them can be too many: ``mainn``, but not ``ruin`` and ``run``."""

_REPLACED: Final = 6
"""Letters from which on a word can have a wrong one: ``silu`` and ``selu`` are both meant."""


def near_miss(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` that `name` is likely to mean, though it is none of them.

    One slip counts: four of five misspellings are one edit away from what was meant, and the first
    letter is seldom wrong (Damerau, 1964; Pollock and Zamora, 1984). Short words, first and last
    letters and numbers are what tells names of one project apart: ``cpu`` and ``gpu``, ``train``
    and ``trains``, ``a100`` and ``h100``.
    """
    known = sorted(names)
    if name in known:
        return None
    return next((other for other in known if _is_slip(name, other)), None)


def _is_slip(name: str, other: str) -> bool:
    """Whether they differ in cases, in ``_`` for ``-``, or in one misspelt word."""
    one, two = _words(name), _words(other)
    if len(one) != len(two):
        return False
    unlike = [(a, b) for a, b in zip(one, two, strict=True) if a != b]
    return not unlike or (len(unlike) == 1 and _is_misspelt(*unlike[0]))


def _words(name: str) -> list[str]:
    """The words and what is between them."""
    return _SEPARATOR.split(name.lower().replace("_", "-"))


def _is_misspelt(one: str, two: str) -> bool:
    """Whether the words differ in one swap, one letter too many, or a wrong one inside."""
    short, long = sorted((one, two), key=len)
    if any(letter.isdigit() for letter in short + long):
        return False
    letters = enumerate(zip(short, long, strict=False))
    same = next((at for at, (a, b) in letters if a != b), len(short))
    if len(short) == len(long):
        return _is_swapped(short, long, same) or _is_replaced(short, long, same)
    return len(long) >= _ADDED and short[same:] == long[same + 1 :] and _is_inside(long, same)


def _is_swapped(one: str, two: str, at: int) -> bool:
    swapped = one[:at] + one[at : at + 2][::-1] + one[at + 2 :]
    return len(one) >= _SWAPPED and swapped == two


def _is_replaced(one: str, two: str, at: int) -> bool:
    return len(one) >= _REPLACED and 0 < at < len(one) - 1 and one[at + 1 :] == two[at + 1 :]


def _is_inside(word: str, at: int) -> bool:
    """Whether the letter is neither the first nor the last, or is the one before it once more."""
    return at > 0 and (at < len(word) - 1 or word[at] == word[at - 1])
