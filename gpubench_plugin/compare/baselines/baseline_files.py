"""The files of baselines in a results folder: ``baselines/<name>.json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpubench_plugin.compare.baselines.history import merged
from gpubench_plugin.environment import files, json_files
from gpubench_plugin.results.run_id import is_path_component, path_component

if TYPE_CHECKING:
    from pathlib import Path

    from gpubench_plugin.compare.baselines.baseline import Baseline


@dataclass(frozen=True)
class BaselineFiles:
    """Those in `folder`, which need not be there."""

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


def to_text(baseline: Baseline) -> str:
    """The text of a baseline's file."""
    from gpubench_plugin.compare.baselines import model

    return model.to_text(baseline)


def from_text(text: str | bytes, where: str) -> Baseline:
    """The baseline in a file's text; `where` begins messages; raises ResultsError."""
    from gpubench_plugin.compare.baselines import model

    return model.from_text(text, where)


def from_copy(name: str, text: str) -> Baseline:
    """The baseline in the text of the registry's copy; raises ResultsError."""
    return from_text(text, f"baseline {name!r} in the registry")


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
