"""Files that appear whole and stay: temporary file, fsync, rename, fsync of the folder."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from hashlib import sha256
from typing import IO, TYPE_CHECKING, Final

from gpubench_plugin.errors import ResultsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_AT_ONCE: Final = 1 << 20


def write(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Write `path` with what `fill` puts into the file it is given.

    Raises:
        ResultsError: the system did not take it; what stood at `path` is as it was.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync(path.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        # torch's writer wraps what the system said.
        if isinstance(error, OSError | RuntimeError):
            raise ResultsError(f"{path} was not written: {error}") from error
        raise


def digest(path: Path) -> str:
    """The SHA-256 of the file at `path`, in hexadecimal; raises OSError."""
    found = sha256()
    with path.open("rb") as file:
        while data := file.read(_AT_ONCE):
            found.update(data)
    return found.hexdigest()


def _sync(folder: Path) -> None:
    """A file's own fsync does not cover its name."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
