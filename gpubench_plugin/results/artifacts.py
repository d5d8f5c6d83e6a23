"""The files of a run, with their sizes and hashes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpubench_plugin.errors import ResultsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpubench_plugin.results.run_directory import RunDirectory

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
