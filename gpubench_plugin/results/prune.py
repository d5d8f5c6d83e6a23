"""Pruning: traces and checkpoints first, whole runs only when asked, never what must stay.

No link is followed, and a run's folder that holds more than a run writes is left as it is. A run is
held like its own session would hold it while something of it goes, so that it cannot be resumed
meanwhile. A whole run is forgotten by the registry first, which would store it again, and is then
gone at once, by another name; so whatever cuts that off, there is a whole run or none, and the rest
goes the next time.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

from gpubench_plugin.environment import files
from gpubench_plugin.errors import ResultsError
from gpubench_plugin.results.journal import Journal
from gpubench_plugin.results.run_directory import (
    PROBE,
    RUN_ID,
    RunDirectory,
    is_under_removal,
    under_removal,
)
from gpubench_plugin.results.tags import FILE as TAGS

HASHED_BYTES: Final = 1 << 30
"""The largest file that is hashed unasked: 0.7 s on an idle core, 10 s on a busy machine."""

_AT_ONCE: Final = 1 << 20
"""Bytes hashed at a time: a trace may be larger than the memory."""


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A file: its `name` from the run's folder on, its `bytes` and its SHA-256 in hexadecimal.

    The latter is None where it was not asked for.
    """

    name: str
    bytes: int
    sha256: str | None


def artifacts(directory: RunDirectory, is_hashed: Callable[[str, int], bool]) -> Iterator[Artifact]:
    """The regular files of a run in the order of their names; links are not followed.

    Args:
        directory: of the run.
        is_hashed: asked of each file, by its name and bytes, before it is read.

    Raises:
        ResultsError: one cannot be read.
    """
    for path in sorted(files_below(directory.path)):
        yield _artifact(path, path.relative_to(directory.path).as_posix(), is_hashed)


def files_below(folder: Path) -> Iterator[Path]:
    """All regular files below `folder`, of real folders only: no link is followed.

    Raises:
        ResultsError: a folder cannot be listed.
    """
    for parent, _, names in os.walk(folder, onerror=_refuse):
        for name in names:
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _artifact(path: Path, name: str, is_hashed: Callable[[str, int], bool]) -> Artifact:
    digest = sha256()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            size = os.fstat(descriptor).st_size
            if not is_hashed(name, size):
                return Artifact(name=name, bytes=size, sha256=None)
            size = 0
            while data := file.read(_AT_ONCE):
                digest.update(data)
                size += len(data)
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error.strerror}") from error
    return Artifact(name=name, bytes=size, sha256=digest.hexdigest())


def _refuse(error: OSError) -> None:
    raise ResultsError(f"{error.filename} cannot be listed: {error.strerror}") from error


_FOLDERS: Final = ("*", "*/*", "*/*/checkpoints/*")
"""Where files are written whole: baselines and the spool, runs and comparisons, checkpoints."""


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """A file or folder, and the bytes in it."""

    path: Path
    bytes: int


def leftovers(results_dir: Path, *, unbegun_before: datetime | None = None) -> Iterator[Leftover]:
    """What killed processes left below `results_dir` that would never be taken up again.

    - a run whose removal was cut off: it goes under the name
      ``.<run id>.gpubench-<8 hex>.removed``;
    - the folder of a run that was killed before it had a journal: it is named like a run, has not
      changed for long, and holds nothing but what is written before the journal; nothing in it
      proves that, so it goes with whole runs only, if it changed last before `unbegun_before`;
    - temporary files of such as are written whole, see :mod:`gpubench_plugin.environment.files`.

    Only real folders and files of this user count: no link is followed. One that goes meanwhile is
    passed over.
    """
    results = Path(os.path.realpath(results_dir))
    for pattern in _FOLDERS:
        for folder in results.glob(pattern):
            with suppress(OSError, ResultsError):
                if not _is_own_folder(folder):
                    continue
                if is_under_removal(folder) or _never_begun(folder, unbegun_before):
                    yield Leftover(path=folder, bytes=_size(folder))
                    continue
                for file in files.abandoned(folder):
                    yield Leftover(path=file, bytes=file.lstat().st_size)


def remove_leftover(path: Path) -> None:
    """Remove it; that somebody else does so, too, is no error.

    Raises:
        ResultsError: the operating system does not let it be removed.
    """
    try:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ResultsError(f"{error.filename} was not removed: {error.strerror}") from error


def _is_own_folder(path: Path) -> bool:
    facts = path.lstat()
    is_own = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid()
    return is_own and os.path.realpath(path) == str(path)


def _never_begun(folder: Path, before: datetime | None) -> bool:
    if before is None or not RUN_ID.fullmatch(folder.name):
        return False
    run = RunDirectory(path=folder)
    known = {PROBE, run.config_resolved.name, run.system.name}
    return folder.lstat().st_mtime < before.timestamp() and all(
        path.is_file()
        and not path.is_symlink()
        and (path.name in known or files.is_temporary(path.name))
        for path in folder.iterdir()
    )


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
            # Those are there for a moment only, unless their writer is killed.
            and not (path.is_file() and (path.name == PROBE or files.is_temporary(path.name)))
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
            files.sync_folder(removed.parent)
            remove_leftover(removed)
        except OSError as error:
            raise ResultsError(f"{error.filename} was not removed: {error.strerror}") from error


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
