"""Baseline store: baselines are owned by the server where one is configured, else by files.

A change replaces the text that it was made from, or else is made again from the new one: two
writers at once lose nothing. Baselines change only explicitly, and keep when and why.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.baselines.model import (
    Baseline,
    BaselineChange,
    baseline_name,
    from_text,
    replay,
    to_text,
)
from gpubench_plugin.core.errors import RegistryError, ResultsError, UsageProblem, suggest
from gpubench_plugin.results.journal import utc_now
from gpubench_plugin.results.run_directory import is_path_component, path_component
from gpubench_plugin.system import files, json_files
from gpubench_plugin.system.files import locked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gpubench_plugin.results.registry.registry import Registry

_KIND: Final = "baseline"
"""Kind of the server's documents that are baselines."""

_ATTEMPTS: Final = 100
"""An attempt fails only if another writer succeeded, so this many would have to write at once."""


@dataclass(frozen=True)
class _Files:
    """Texts of baselines in files ``<folder>/<name>.json``; the folder need not exist."""

    folder: Path

    @property
    def label(self) -> str:
        return str(self.folder)

    def source(self, name: str) -> str:
        return str(self._path(name))

    def names(self) -> list[str]:
        names = (path.stem for path in sorted(self.folder.glob("[!.]*.json")))
        return [name for name in names if is_path_component(name)]  # not "main copy"

    def read(self, name: str) -> str | None:
        try:
            data = files.read(self._path(name), limit=json_files.LIMIT_OF_FACTS_BYTES)
        except FileNotFoundError:
            return None
        return data.decode("utf-8", "surrogateescape")

    def swap(self, name: str, old: str | None, new: str) -> bool:
        """Replace the text `old`, or none, by `new`; return False if there is another by now."""
        with files.refusals("write", self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder):
            if self.read(name) != old:
                return False
            json_files.write_text(self._path(name), new)
        return True

    def _path(self, name: str) -> Path:
        return self.folder / f"{path_component('baseline', name)}.json"


@dataclass(frozen=True)
class _Documents:
    """Texts of baselines in the documents of a server."""

    registry: Registry

    @property
    def label(self) -> str:
        return self.registry.database.location.shown_name

    def source(self, name: str) -> str:
        return f"baseline {name!r} in {self.label}"

    def names(self) -> list[str]:
        return self.registry.documents(_KIND)

    def read(self, name: str) -> str | None:
        return self.registry.document(_KIND, path_component("baseline", name))

    def swap(self, name: str, old: str | None, new: str) -> bool:
        return self.registry.swap_document(_KIND, name, old, new)


class BaselineExists(UsageProblem):
    """The `baseline` that was to be set only if it was missing exists, perhaps since just now."""

    def __init__(self, baseline: Baseline):
        super().__init__(f"baseline {baseline.name} already exists and is left unchanged")
        self.baseline = baseline


@dataclass
class Baselines:
    """The baselines of a `server`, or else of the results directory.

    `unanswered` is the error of a server that cannot be reached; all methods raise it then.
    """

    results_dir: Path
    server: Registry | None = None
    unanswered: str = field(default="", kw_only=True)
    now: Callable[[], str] = field(default=utc_now, kw_only=True)

    @property
    def _owner(self) -> _Files | _Documents:
        if self.unanswered:
            raise RegistryError(f"the baselines cannot be read: {self.unanswered}")
        if self.server is not None:
            return _Documents(self.server)
        return _Files(self.results_dir / "baselines")

    @property
    def location(self) -> str:
        """The folder or the server's URL, without credentials."""
        return self._owner.label

    def names(self) -> tuple[str, ...]:
        """Sorted names of existing baselines, including broken ones.

        Raises:
            RegistryError: the server cannot be reached; so for all methods.
        """
        return tuple(name for name in self._owner.names() if self._exists_or_is_broken(name))

    def _exists_or_is_broken(self, name: str) -> bool:
        try:
            return self.get(name) is not None
        except ResultsError:
            return True

    def the_only(self) -> str:
        """The name of the only baseline, the default of commands.

        Raises:
            UsageProblem: there is none, or there are several.
        """
        names = self.names()
        if len(names) > 1:
            raise UsageProblem(f"--baseline: several baselines exist, name one: {', '.join(names)}")
        if not names:
            raise UsageProblem(
                "--baseline: no baseline exists yet; create one: gpubench baseline set"
            )
        return names[0]

    def get(self, name: str) -> Baseline | None:
        """The named baseline, or None.

        Raises:
            ResultsError: it cannot be read, or has another format.
        """
        baseline, _ = self._read(name)
        return None if baseline is None or baseline.is_removed else baseline

    def require(self, name: str) -> Baseline:
        """The named baseline.

        Raises:
            UsageProblem: it is unknown; the message names the existing ones.
            ResultsError: as :meth:`get`.
        """
        return self._existing(name, self.get(name))

    def _existing(self, name: str, baseline: Baseline | None) -> Baseline:
        if baseline is None:
            raise UsageProblem(self.unknown(name))
        return baseline

    def unknown(self, name: str) -> str:
        """Error message for a baseline that is unknown."""
        names = self.names()
        listing = f"existing: {', '.join(names)}" if names else "none exists yet"
        return f"no baseline named {name!r}{suggest(name, names)}; {listing}"

    def typo_message(self, name: str) -> str:
        """Error message if `name` is probably a typo of another baseline; else empty.

        Names of removed baselines are no typos.
        """
        is_known = name in self._owner.names()
        if is_known or _letters(name) not in map(_letters, self.names()):
            return ""
        return f"{self.unknown(name)}; to create it: gpubench baseline set {name} RUN"

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

        Accepted levels are kept without `reset_accepted`.

        Raises:
            UsageProblem: the name is invalid.
            BaselineExists: it does, and is to be set only `if_missing`.
            ResultsError: it cannot be written, or an existing one not be read.
        """
        return self._change(
            baseline_name(name),
            if_missing=if_missing,
            action="set",
            runs=tuple(sorted({*runs})),
            branch=branch,
            reason=reason,
            forced=tuple(overridden),
            reset_accepted=reset_accepted,
        )

    def accept(self, name: str, run: str, benchmark: str, *, reason: str) -> Baseline:
        """Start an accepted level of `benchmark` with `run`.

        Raises:
            UsageProblem: there is no such baseline, or no reason.
            ResultsError: as :meth:`set`.
        """
        if not reason.strip():
            raise UsageProblem(
                "--reason: empty; allowed: a text that explains why the level is accepted"
            )
        return self._change(name, action="accept", runs=(run,), benchmark=benchmark, reason=reason)

    def remove(self, name: str, *, reason: str = "") -> Baseline:
        """Remove baseline `name`, but for its changes.

        Raises:
            UsageProblem: there is no such baseline.
            ResultsError: as :meth:`set`.
        """
        return self._change(name, action="remove", branch=None, reason=reason)

    def pinned(self) -> dict[str, tuple[str, ...]]:
        """Ids of all runs that baselines depend on, with the baselines' names.

        Raises:
            ResultsError: a baseline cannot be read, so that its runs are unknown.
        """
        names_by_run: dict[str, tuple[str, ...]] = {}
        for name in self._owner.names():
            baseline = self.get(name)
            for run in baseline.protected_runs if baseline else ():
                names_by_run[run] = (*names_by_run.get(run, ()), name)
        return names_by_run

    def _read(self, name: str) -> tuple[Baseline | None, str | None]:
        """The baseline, which may be removed, and its text."""
        text = self._owner.read(name)
        if text is None:
            return None, None
        # A file that was renamed or copied is the baseline of its new name.
        return replace(from_text(text, self._owner.source(name)), name=name), text

    def _change(self, name: str, *, if_missing: bool = False, **fields: Any) -> Baseline:
        """Append the :class:`BaselineChange` of these `fields`, again if another writer was faster.

        One that is not set must exist, and the change has its runs and branch unless it states
        others.
        """
        for _ in range(_ATTEMPTS):
            old, text = self._read(name)
            existing = None if old is None or old.is_removed else old
            if if_missing and existing is not None:
                raise BaselineExists(existing)
            kept: dict[str, Any] = {}
            if fields["action"] != "set":
                existing = self._existing(name, existing)
                kept = {"runs": existing.runs, "branch": existing.branch}
            changes = () if old is None else old.changes
            change = BaselineChange(**{"time": self.now(), **kept, **fields})
            new = replay(name, (*changes, change))
            if self._owner.swap(name, text, to_text(new)):
                return new
        raise ResultsError(f"baseline {name!r}: other writers were faster {_ATTEMPTS} times")


def _letters(name: str) -> tuple[list[str], list[str]]:
    """What names have in common that differ by case, separators or a swap of letters alone."""
    folded = name.casefold()
    return sorted(filter(str.isalpha, folded)), [*filter(str.isdigit, folded)]
