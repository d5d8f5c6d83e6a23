"""Making room: traces and checkpoints first, whole runs only when asked, never what must stay.

No link is followed, and a run's folder that holds more than a run writes is left as it is. A run
is held like its own session would hold it while something of it goes, so that nobody resumes it
meanwhile. A whole run is forgotten by the registry first, which would store it again, and is then
gone at once, by another name; so whatever cuts that off, there is a whole run or none, and the rest
goes the next time.
"""

from __future__ import annotations

import shutil
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpubench_plugin.environment import whole_file
from gpubench_plugin.errors import ResultsError
from gpubench_plugin.results import leftovers
from gpubench_plugin.results.artifacts import files_below
from gpubench_plugin.results.journal import Journal
from gpubench_plugin.results.run_directory import PROBE
from gpubench_plugin.results.search import under_removal
from gpubench_plugin.results.tags import FILE as TAGS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from pathlib import Path

    from gpubench_plugin.results.run_directory import RunDirectory

HEAVY: Final = ("traces", "checkpoints")
"""Folders of a run that no number depends on."""

PER_RANK: Final = ("ranks",)
"""Folders with the samples and logs of single ranks."""


_DAY_S: Final = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Removal:
    """A folder of a run, or the whole of it, and the bytes in its files."""

    directory: RunDirectory
    path: Path
    bytes: int


def older(
    directories: Sequence[RunDirectory], *, keep_last: int | None, days: float | None, now: datetime
) -> list[RunDirectory]:
    """Those that are not among the last `keep_last` of their experiment and older than `days`.

    None for one of them: it does not matter. `directories` are sorted, the oldest first. Age counts
    from when a run was last written to: one that was resumed yesterday is a day old.
    """
    if keep_last is None and days is None:
        return []
    experiments: dict[str, list[RunDirectory]] = {}
    for directory in directories:
        experiments.setdefault(directory.experiment, []).append(directory)
    latest = {
        run for runs in experiments.values() for run in runs[-(keep_last or 0) or len(runs) :]
    }
    return [
        directory
        for directory in directories
        if (keep_last is None or directory not in latest)
        and (days is None or now.timestamp() - _last_written(directory) > days * _DAY_S)
    ]


def removals(directory: RunDirectory, folders: Sequence[str]) -> list[Removal]:
    """Those of the `folders` of a run that are there; links are left alone.

    Raises:
        ResultsError: a folder cannot be listed.
    """
    paths = (directory.path / name for name in folders)
    return [
        Removal(directory=directory, path=path, bytes=_size(path))
        for path in paths
        if path.is_dir() and not path.is_symlink()
    ]


def whole(directory: RunDirectory) -> Removal:
    """The removal of the run itself.

    Raises:
        ResultsError: a folder cannot be listed.
    """
    return Removal(directory=directory, path=directory.path, bytes=_size(directory.path))


def foreign_files(directory: RunDirectory) -> list[str]:
    """What lies in the run's folder and was not written by gpubench: somebody's notes, a link.

    Raises:
        ResultsError: the folder cannot be listed.
    """
    own = {path.name for path in (*directory.files, directory.path / TAGS)}
    folders = {path.name for path in directory.folders}
    try:
        return sorted(
            path.name
            for path in directory.path.iterdir()
            if path.name not in (folders if path.is_dir() and not path.is_symlink() else own)
            and not (path.is_file() and _is_passing(path.name))
        )
    except OSError as error:
        raise ResultsError(f"{directory} cannot be listed: {error.strerror}") from error


def is_link(directory: RunDirectory) -> bool:
    """Whether the run, its experiment or its journal is a link: to someone else's data."""
    own = (directory.path, directory.path.parent, directory.journal)
    return any(path.is_symlink() for path in own)


def remove(removal: Removal, *, forget: Callable[[], None] = lambda: None) -> None:
    """Do it; before anything of a whole run goes, `forget` lets others forget it.

    Raises:
        ResultsError: another process is writing the run, it holds something that is not of it, or
            something could not be removed.
    """
    run = removal.directory
    with Journal(run.journal):
        try:
            if removal.path != run.path:
                shutil.rmtree(removal.path)
                return
            if foreign := foreign_files(run):
                raise ResultsError(f"{run} was not removed: it also holds {', '.join(foreign)}")
            forget()
            removed = run.path.rename(under_removal(run.path))
            whole_file.sync_folder(removed.parent)
            leftovers.remove_leftover(removed)
        except OSError as error:
            raise ResultsError(f"{error.filename} was not removed: {error.strerror}") from error


def _is_passing(name: str) -> bool:
    """Whether a file that is called so is there for a moment only, unless its writer is killed."""
    return name == PROBE or whole_file.is_temporary(name)


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in files_below(folder))


def _last_written(directory: RunDirectory) -> float:
    """When, in seconds since the epoch, a file of the run was changed last, or the run began.

    Folders do not count: they change when something in them is removed. A run that cannot be looked
    at is not old.
    """
    try:
        status = [path.lstat() for path in directory.path.iterdir()]
        began = directory.began.timestamp()
    except OSError:
        return float("inf")
    return max([began, *(one.st_mtime for one in status if stat.S_ISREG(one.st_mode))])
