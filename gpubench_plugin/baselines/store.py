"""Baseline store: one file per name, shared between machines through the registry.

The files ``<results>/baselines/<name>.json`` are authoritative. The registry holds a copy of each
for other machines; file and copy are merged, change by change. Baselines change only explicitly,
and the file keeps when and why.
"""

from __future__ import annotations

import re
import secrets
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.baselines.model import (
    Baseline,
    BaselineChange,
    Merge,
    baseline_name,
    from_text,
    merge,
    replay,
    superseded_changes,
    to_text,
)
from gpubench_plugin.core.errors import (
    GpubenchError,
    RegistryError,
    ResultsError,
    UsageProblem,
    suggest,
)
from gpubench_plugin.environment import files, json_files
from gpubench_plugin.environment.locks import locked
from gpubench_plugin.results.journal import utc_now
from gpubench_plugin.results.logical_time import time_after
from gpubench_plugin.results.run_directory import is_path_component, path_component

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from sqlalchemy import Connection

    from gpubench_plugin.results.registry.registry import Registry
    from gpubench_plugin.results.registry.spool import Report


@dataclass(frozen=True)
class BaselineFiles:
    """Baseline files in `folder`, which need not exist."""

    folder: Path

    def names(self) -> list[str]:
        """Names of all files, including broken ones and removed baselines."""
        return [path.stem for path in self._paths() if is_path_component(path.stem)]

    def stray_file_warnings(self) -> list[str]:
        """Warnings about files whose names cannot be baselines, such as ``main copy.json``."""
        return [
            f"{path} is ignored: {path.stem!r} is not a valid baseline name"
            for path in sorted(self._paths())
            if not is_path_component(path.stem)
        ]

    def _paths(self) -> list[Path]:
        paths = self.folder.glob("*.json") if self.folder.is_dir() else ()
        return [path for path in paths if not path.name.startswith(".")]

    def path(self, name: str) -> Path:
        """Path of the named baseline's file; raises UsageProblem for an invalid name."""
        return self.folder / f"{path_component('baseline', name)}.json"

    def read(self, name: str) -> Baseline | None:
        """Read the file, None if missing; raises ResultsError."""
        path = self.path(name)
        try:
            text = files.read(path, limit=json_files.LIMIT_OF_FACTS_BYTES)
        except FileNotFoundError:
            return None
        return from_text(text, str(path))


def from_copy(name: str, text: str) -> Baseline:
    """Parse the registry's copy of a baseline; raises ResultsError."""
    return from_text(text, f"baseline {name!r} in the registry")


def merge_files(connection: Connection, results_dir: Path, report: Report) -> None:
    """Merge the baseline files below `results_dir` into the registry's copies.

    `report` gets the problems of single files; the others are merged all the same.
    """
    files = BaselineFiles(results_dir / "baselines")
    report.notes += files.stray_file_warnings()
    for name in sorted(files.names()):
        try:
            _merge_file(connection, files, name)
        except GpubenchError as error:
            report.errors.append(str(error))


def _merge_file(connection: Connection, files: BaselineFiles, name: str) -> None:
    """Merge one baseline file into the registry's copy, if any.

    Raises:
        UsageProblem, ResultsError: the name is invalid, or a document cannot be read.
    """
    from gpubench_plugin.results.registry import documents

    def here() -> AbstractContextManager[Connection]:
        return nullcontext(connection)

    baseline = files.read(name)
    if baseline is not None:
        documents.merge(here, here, KIND, name, partial(merged_copy, baseline))


def merged_copy(baseline: Baseline, copy: str | None) -> tuple[str, str]:
    """Text of the registry's copy after merging `baseline`, and the time of its last change.

    The text is unchanged if `baseline` adds no change.

    Raises:
        ResultsError: the copy cannot be read, or has a newer format.
    """
    if copy is None:
        return to_text(baseline), baseline.changed
    stored_copy = from_copy(baseline.name, copy)
    merged = merge(baseline, stored_copy).baseline
    return (copy if merged == stored_copy else to_text(merged)), merged.changed


KIND: Final = "baseline"
"""Kind of the registry's documents that are baselines."""


class Baselines:
    """Baselines of a results directory and their copies in `registry`, if any.

    If an expected registry cannot be reached, baselines are not shared: `registry_error` is its
    error, else empty, `notes` tells the user, and names without a local file may be baselines.
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
        self.registry_error = unanswered
        self._files = BaselineFiles(self.folder)
        self._registry = registry
        self._now = now

    def names(self) -> tuple[str, ...]:
        """Sorted names of existing baselines, including broken files."""
        copies = self._copies()
        names = self._all_names(copies)
        return tuple(n for n in names if _stands(partial(self._merge_and_write, n, copies)))

    def the_only(self) -> str:
        """The name of the only baseline, the default of commands.

        Raises:
            UsageProblem: there is none, or there are several.
            RegistryError: there is none here, and the registry cannot be reached.
        """
        names = self.names()
        if len(names) > 1:
            raise UsageProblem(f"--baseline: several baselines exist, name one: {', '.join(names)}")
        if not names and self.registry_error:
            raise RegistryError(f"cannot list the baselines: {self.registry_error}")
        if not names:
            raise UsageProblem(
                "--baseline: no baseline exists yet; create one: gpubench baseline set"
            )
        return names[0]

    def get(self, name: str) -> Baseline | None:
        """The named baseline; None if unknown, see `registry_error`.

        Raises:
            ResultsError: its file or the registry's copy cannot be read, or has a newer format.
        """
        baseline = self._merge_and_write(name, self._copies())
        return None if baseline is None or baseline.removed else baseline

    def require(self, name: str) -> Baseline:
        """The named baseline.

        Raises:
            UsageProblem: it is unknown; the message names the existing ones.
            RegistryError: it is not here, and the registry cannot be reached.
            ResultsError: as :meth:`get`.
        """
        if (baseline := self.get(name)) is not None:
            return baseline
        raise self._missing(name)

    def exists(self, name: str) -> bool:
        """Whether the named baseline exists; raises RegistryError and ResultsError as `require`."""
        if self.get(name) is not None:
            return True
        if self.registry_error:
            raise self._missing(name)
        return False

    def unknown(self, name: str) -> str:
        """Error message for a baseline that is unknown, or cannot be looked up."""
        if self.registry_error:
            return f"cannot tell whether baseline {name!r} exists: {self.registry_error}"
        names = self.names()
        listing = f"existing: {', '.join(names)}" if names else "none exists yet"
        return f"no baseline named {name!r}{suggest(name, names)}; {listing}"

    def typo_message(self, name: str) -> str:
        """Error message if `name` is probably a typo of another baseline; else empty.

        Names of removed baselines are no typos. Nothing is merged.
        """
        copies = self._copies()
        all_names = {*self._files.names(), *copies}
        if self.registry_error or name in all_names:
            return ""
        existing = [n for n in all_names if _stands(partial(self._merge, n, copies))]
        suggestion = near_miss(name, existing)
        if suggestion is None:
            return ""
        hint = f"to create it: gpubench baseline set {name} RUN"
        return f"no baseline named {name!r} (did you mean {suggestion!r}?); {hint}"

    def set(
        self,
        name: str,
        runs: Sequence[str],
        *,
        branch: str | None,
        reason: str = "",
        overridden: Sequence[str] = (),
        reset_accepted: bool = False,
        if_missing: bool = False,
    ) -> Baseline:
        """Pin `runs` under `name`, replacing earlier pins.

        Accepted levels are kept without `reset_accepted`. With `if_missing` an existing baseline is
        returned unchanged.

        Raises:
            UsageProblem: the name is invalid.
            RegistryError: with `if_missing`, if the registry cannot be reached.
            ResultsError: the file cannot be written, or an existing one not be read.
        """
        run_ids = tuple(sorted(set(runs)))

        def change(old: Baseline | None, time: str) -> Baseline:
            if if_missing and old is not None and not old.removed:
                return old
            if if_missing and self.registry_error:
                raise self._missing(name)
            return _after(
                old,
                name,
                time=time,
                action="set",
                runs=run_ids,
                branch=branch,
                reason=reason,
                forced=tuple(overridden),
                reset_accepted=reset_accepted,
            )

        return self._change(baseline_name(name), change, may_be_overruled=if_missing)

    def accept(self, name: str, run: str, benchmark: str, *, reason: str) -> Baseline:
        """Start an accepted level of `benchmark` with `run`.

        Raises:
            UsageProblem: there is no such baseline, or no reason.
            RegistryError: as :meth:`require`.
            ResultsError: as :meth:`set`.
        """
        if not reason.strip():
            raise UsageProblem(
                "--reason: empty; allowed: a text that explains why the level is accepted"
            )

        def change(old: Baseline | None, time: str) -> Baseline:
            current = self._require_existing(old, name)
            return _after(
                current,
                name,
                time=time,
                action="accept",
                runs=(run,),
                branch=current.branch,
                benchmark=benchmark,
                reason=reason,
            )

        return self._change(name, change)

    def remove(self, name: str, *, reason: str = "") -> Baseline:
        """Remove baseline `name`; its file stays as a tombstone.

        Raises:
            UsageProblem: there is no such baseline.
            RegistryError: as :meth:`require`.
            ResultsError: as :meth:`set`.
        """

        def change(old: Baseline | None, time: str) -> Baseline:
            runs = self._require_existing(old, name).runs
            return _after(
                old, name, time=time, action="remove", runs=runs, branch=None, reason=reason
            )

        return self._change(name, change)

    def pinned(self) -> dict[str, tuple[str, ...]]:
        """Ids of all runs that baselines depend on, with the baselines' names.

        Raises:
            ResultsError: a baseline cannot be read, so that its runs are unknown.
        """
        names_by_run: dict[str, tuple[str, ...]] = {}
        copies = self._copies()
        for name in self._all_names(copies):
            baseline = self._merge_and_write(name, copies)
            for run in baseline.protected_runs if baseline else ():
                names_by_run[run] = (*names_by_run.get(run, ()), name)
        return names_by_run

    def _all_names(self, copies: Mapping[str, str]) -> list[str]:
        """Names of all files and copies, including broken and removed ones."""
        self._note(self._files.stray_file_warnings())
        return sorted({*self._files.names(), *copies})

    def _require_existing(self, baseline: Baseline | None, name: str) -> Baseline:
        if baseline is None or baseline.removed:
            raise self._missing(name)
        return baseline

    def _missing(self, name: str) -> GpubenchError:
        return (RegistryError if self.registry_error else UsageProblem)(self.unknown(name))

    def _change(
        self,
        name: str,
        change: Callable[[Baseline | None, str], Baseline],
        *,
        may_be_overruled: bool = False,
    ) -> Baseline:
        """Apply `change`, called with the baseline and the current time, and write the result.

        Concurrent changes are all kept; :func:`.model.replay` determines their effect.

        Raises:
            ResultsError: this change is superseded by a contradicting one.
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
        merge = self._merge_into_registry(new)
        self._catch_up(merge.baseline)
        reasons = dict(merge.superseded)
        own_reason = "" if may_be_overruled else reasons.pop(new.changes[-1], "")
        self._note(reasons.values())
        if own_reason:
            raise ResultsError(own_reason)
        return merge.baseline

    def _merge_and_write(self, name: str, copies: Mapping[str, str]) -> Baseline | None:
        """Merge file and copy and write back the result, also of a removed baseline."""
        baseline = self._merged(name, copies)
        if baseline is not None:
            self._catch_up(baseline)
        return baseline

    def _catch_up(self, baseline: Baseline) -> None:
        """Write changes missing in the file, if it exists, for when the registry is down."""
        file = self._files.read(baseline.name)
        if file is None or {*baseline.changes} <= {*file.changes}:
            return
        path = self._files.path(baseline.name)
        try:
            with locked(self.folder):
                file = self._files.read(baseline.name)
                merged = baseline if file is None else merge(file, baseline).baseline
                json_files.write_text(path, to_text(merged))
        except ResultsError as error:
            self._note([f"{path} does not yet contain others' changes: {error}"])

    def _merged(self, name: str, copies: Mapping[str, str]) -> Baseline | None:
        """Merge file and registry copy, and store the result as the copy."""
        merge = self._merge(name, copies)
        if merge is None:
            return None
        self._note(merge.superseded.values())
        if name in copies and from_copy(name, copies[name]) == merge.baseline:
            return merge.baseline
        return self._merge_into_registry(merge.baseline).baseline

    def _merge(self, name: str, copies: Mapping[str, str]) -> Merge | None:
        """Merge file and registry copy, if at least one exists."""
        file = self._files.read(name)
        copy = from_copy(name, copies[name]) if name in copies else None
        if file is None or copy is None:
            baseline = file or copy
            return None if baseline is None else Merge(baseline=baseline, superseded={})
        if {*file.changes} <= {*copy.changes}:
            return Merge(baseline=copy, superseded=superseded_changes(file, copy))
        return merge(file, copy)

    def _copies(self) -> Mapping[str, str]:
        if self._registry is None:
            return {}
        try:
            return self._registry.documents(KIND)
        except RegistryError as error:
            self._drop_registry(f"baselines of other machines are unavailable: {error}")
            self.registry_error = str(error)
            return {}

    def _merge_into_registry(self, baseline: Baseline) -> Merge:
        """Merge `baseline` into the registry's copy and store it."""
        unmerged = Merge(baseline=baseline, superseded={})
        if self._registry is None:
            return unmerged
        try:
            merge_copy = partial(merged_copy, baseline)
            copy = self._registry.merge_document(KIND, baseline.name, merge_copy)
        except RegistryError as error:
            self._drop_registry(
                f"{self._files.path(baseline.name)} was written, but other machines will not "
                f"see it until the registry is reachable again: {error}"
            )
            return unmerged
        return unmerged if copy is None else merge(baseline, from_copy(baseline.name, copy))

    def _drop_registry(self, note: str) -> None:
        self._registry = None
        self._note([note])

    def _note(self, lines: Iterable[str]) -> None:
        """Collect `lines` for the user without duplicates."""
        self.notes += [line for line in dict.fromkeys(lines) if line not in self.notes]


def _stands(read: Callable[[], Baseline | Merge | None]) -> bool:
    """Whether the baseline that `read` returns exists, or is broken."""
    try:
        baseline = read()
    except ResultsError:
        return True
    baseline = baseline.baseline if isinstance(baseline, Merge) else baseline
    return baseline is not None and not baseline.removed


def _after(old: Baseline | None, name: str, **fields: Any) -> Baseline:
    """Replay the history of `name` with one more :class:`.model.BaselineChange` of these fields."""
    change = BaselineChange(id=secrets.token_hex(6), **fields)
    return replay(name, (*(old.changes if old else ()), change))


_SEPARATOR: Final = re.compile(r"([-.])")

_SWAPPED: Final = 4
"""Letters of a word that may have two swapped, at least: ``mian``, but not ``tp`` and ``pt``."""

_ADDED: Final = 5
"""Letters of a word that may have one too many: ``mainn``, but not ``ruin`` and ``run``."""

_REPLACED: Final = 6
"""Letters of a word that may have a wrong one: ``silu`` and ``selu`` are two words."""


def near_miss(name: str, names: Iterable[str]) -> str | None:
    """The existing name that `name` is probably a typo of.

    One slip counts: four of five misspellings are one edit away from the word, and the first letter
    is seldom wrong (Damerau, 1964; Pollock and Zamora, 1984). Short words, first and last letters
    and numbers distinguish names: ``cpu`` and ``gpu``, ``train`` and ``trains``, ``a100`` and
    ``h100``.
    """
    candidates = sorted(names)
    if name in candidates:
        return None
    return next((candidate for candidate in candidates if _is_slip(name, candidate)), None)


def _is_slip(name: str, other: str) -> bool:
    """Whether they differ only in case, ``_`` for ``-``, or one misspelt word."""
    words, other_words = _words(name), _words(other)
    if len(words) != len(other_words):
        return False
    differing = [(a, b) for a, b in zip(words, other_words, strict=True) if a != b]
    return not differing or (len(differing) == 1 and _is_misspelt(*differing[0]))


def _words(name: str) -> list[str]:
    """Words and separators."""
    return _SEPARATOR.split(name.lower().replace("_", "-"))


def _is_misspelt(word: str, other_word: str) -> bool:
    """Whether the words differ by one transposition, one extra letter or one wrong inner letter."""
    shorter, longer = sorted((word, other_word), key=len)
    if any(letter.isdigit() for letter in shorter + longer):
        return False
    letters = enumerate(zip(shorter, longer, strict=False))
    common = next((at for at, (a, b) in letters if a != b), len(shorter))
    if len(shorter) == len(longer):
        return _is_swapped(shorter, longer, common) or _is_replaced(shorter, longer, common)
    return (
        len(longer) >= _ADDED
        and shorter[common:] == longer[common + 1 :]
        and _is_inside(longer, common)
    )


def _is_swapped(word: str, other_word: str, at: int) -> bool:
    swapped = word[:at] + word[at : at + 2][::-1] + word[at + 2 :]
    return len(word) >= _SWAPPED and swapped == other_word


def _is_replaced(word: str, other_word: str, at: int) -> bool:
    return (
        len(word) >= _REPLACED and 0 < at < len(word) - 1 and word[at + 1 :] == other_word[at + 1 :]
    )


def _is_inside(word: str, at: int) -> bool:
    """Whether the letter is an inner one, or repeats its predecessor."""
    return at > 0 and (at < len(word) - 1 or word[at] == word[at - 1])
