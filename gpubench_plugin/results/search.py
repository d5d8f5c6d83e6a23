"""Where earlier runs are looked up by their folder, their id or its beginning."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpubench_plugin.errors import UsageProblem, nearest
from gpubench_plugin.results.run_directory import RunDirectory

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHOWN: Final = 5
"""Runs that a message lists."""


_REMOVED: Final = re.compile(r"\..+\.gpubench-[0-9a-f]{8}\.removed")


def under_removal(run: Path) -> Path:
    """A new name for the folder of a run, under which no reader takes it for one."""
    return run.with_name(f".{run.name}.gpubench-{secrets.token_hex(4)}.removed")


def is_under_removal(folder: Path) -> bool:
    """Whether it has such a name."""
    return _REMOVED.fullmatch(folder.name) is not None


def runs_in(results_dir: Path) -> list[RunDirectory]:
    """All runs below `results_dir`, of every experiment, the oldest first."""
    journals = Path(os.path.realpath(results_dir)).glob("*/*/metrics.jsonl")
    folders = (journal.parent for journal in journals)
    found = (RunDirectory(path=folder) for folder in folders if not is_under_removal(folder))
    return sorted(found, key=lambda run: (run.run_id, run.experiment))


def find_run(results_dir: Path, text: str, *, here: Path) -> RunDirectory:
    """The run that `text` names: its folder, its id or the id's beginning.

    A folder is seen from `results_dir` or from `here`; an id is looked for in all experiments.

    Raises:
        UsageProblem: no run is named so, or several are; the message names those there are.
    """
    if os.sep in text:
        listed = results_dir / text
        return RunDirectory.open(listed if listed.is_dir() else here / text)
    runs = runs_in(results_dir)
    found = [run for run in runs if run.run_id == text]
    found = found or [run for run in runs if run.run_id.startswith(text)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageProblem(f"{len(found)} runs begin with {text!r}: {_listed(found)}")
    hint = nearest(text, [run.run_id for run in runs])
    there = f"the latest: {_listed(runs)}" if runs else "there is none at all"
    raise UsageProblem(f"no run in {results_dir} begins with {text!r}{hint}; {there}")


def _listed(runs: Sequence[RunDirectory]) -> str:
    """The latest of `runs`, the latest first."""
    shown = [f"{run.experiment}/{run.run_id}" for run in reversed(runs)][:_SHOWN]
    more = len(runs) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
