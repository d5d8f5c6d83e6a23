"""Pruning of run directories: traces and checkpoints, or whole runs on request.

A run with unknown files is kept. Its journal is locked meanwhile, so that it cannot be resumed. A
whole run is first dropped from the registry, which would not notice,
then renamed, then removed: an interruption leaves a complete run or none, and leftovers are removed
the next time.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.core.records import Json
from gpubench_plugin.results.journal import Journal
from gpubench_plugin.results.run_directory import RunDirectory
from gpubench_plugin.system import files

if TYPE_CHECKING:
    from gpubench_plugin.results.reader import RunOverview


def artifacts(directory: RunDirectory) -> Iterator[Json]:
    """Name below the run, size and SHA-256 of each regular file, sorted; raises ResultsError."""
    for path in sorted(files_below(directory.path)):
        name = path.relative_to(directory.path).as_posix()
        with files.refusals("read", path), path.open("rb") as file:
            sha256 = file_digest(file, "sha256").hexdigest()
            yield {"name": name, "bytes": path.stat().st_size, "sha256": sha256}


def files_below(folder: Path) -> Iterator[Path]:
    """Regular files below `folder`; raises ResultsError."""
    for parent, _, names in os.walk(folder, onerror=_refuse):
        for name in names:
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _refuse(error: OSError) -> None:
    raise ResultsError(f"cannot list {error.filename}: {error.strerror}") from error


_FOLDERS: Final = ("*", "*/*", "*/*/checkpoints/*")
"""Folders of atomic writes: baselines, runs and comparisons, checkpoints."""


@dataclass(frozen=True, kw_only=True)
class PruneTarget:
    """A file or folder to remove, with its size."""

    path: Path
    bytes: int


def leftovers(results_dir: Path) -> Iterator[PruneTarget]:
    """Leftovers of killed processes below `results_dir` that will never be resumed.

    - interrupted removals, which have a temporary name;
    - temporary files of atomic writes, see :mod:`gpubench_plugin.system.files`.
    """
    results = Path(os.path.realpath(results_dir))
    for folder in (folder for pattern in _FOLDERS for folder in results.glob(pattern)):
        with suppress(OSError, ResultsError):
            if files.is_temporary(folder.name):
                yield PruneTarget(path=folder, bytes=_size(folder))
                continue
            for file in files.abandoned(folder):
                yield PruneTarget(path=file, bytes=file.stat().st_size)


def remove_leftover(path: Path) -> None:
    """Remove a file or folder, ignoring concurrent removal; raises ResultsError."""
    with files.refusals("remove"), suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


HEAVY: Final = ("traces", "checkpoints")
"""Folders of a run without numbers."""

PER_RANK: Final = ("ranks",)
"""Folders of a run with samples and logs of each rank."""

_DAY_S: Final = 86_400.0


_Run = TypeVar("_Run", RunDirectory, "RunOverview")


def select_old(
    runs: Sequence[_Run],
    written_at: Callable[[_Run], float],
    *,
    keep_last: int | None,
    days: float | None,
    now: datetime,
) -> list[_Run]:
    """Those of `runs`, newest first, that are old enough and not among the last ones to keep.

    Runs of an experiment but the `keep_last`, last written at least `days` ago; None for any.
    """
    numbers: Counter[str] = Counter()
    old = []
    for run in runs:
        numbers[run.experiment] += 1
        age_s = now.timestamp() - written_at(run)
        if numbers[run.experiment] > (keep_last or 0) and age_s >= (days or 0) * _DAY_S:
            old.append(run)
    return old


def targets(paths: Iterable[Path]) -> list[PruneTarget]:
    """The existing folders among `paths`, with their sizes; raises ResultsError."""
    return [PruneTarget(path=path, bytes=_size(path)) for path in paths if path.is_dir()]


def unknown_files(directory: RunDirectory) -> list[str]:
    """Names in the run directory that gpubench does not write; raises ResultsError."""
    own_files = {path.name for path in directory.files}
    with files.refusals("list", directory.path):
        return sorted(
            path.name
            for path in directory.path.iterdir()
            if path.name not in ((*HEAVY, *PER_RANK) if path.is_dir() else own_files)
            and not files.is_temporary(path.name)
        )


def remove(run: RunDirectory, part: Path, *, forget: Callable[[], None] = lambda: None) -> None:
    """Remove the `run`, or a `part` of it; `forget` drops a whole run from the registry first.

    Raises:
        ResultsError: another process is writing the run, or something could not be removed.
    """
    with Journal(run.journal), files.refusals("remove"):
        if part != run.path:
            remove_leftover(part)
            return
        forget()
        renamed_path = run.path.rename(files.temporary_name(run.path))
        files.sync_folder(renamed_path.parent)
        remove_leftover(renamed_path)


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in files_below(folder))


def last_written(directory: RunDirectory) -> float:
    """Latest modification of the run's files, or its start, in epoch seconds; infinite if unknown.

    Folders do not count, since pruning their contents changes them.
    """
    try:
        files_of_run = [path for path in directory.path.iterdir() if path.is_file()]
        times = [path.stat().st_mtime for path in files_of_run]
        return max(directory.start_time.timestamp(), *times)
    except OSError:
        return float("inf")
