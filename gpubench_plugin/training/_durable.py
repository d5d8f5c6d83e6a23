"""Checkpoints written whole, or not at all, and their hash."""

from __future__ import annotations

from hashlib import sha256
from typing import IO, TYPE_CHECKING, Final

from gpubench_plugin.environment import whole_file
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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        whole_file.write(path, fill)
    # torch's writer wraps what the system said.
    except (OSError, RuntimeError) as error:
        raise ResultsError(f"{path} was not written: {error}") from error


def digest(path: Path) -> str:
    """The SHA-256 of the file at `path`, in hexadecimal; raises OSError."""
    found = sha256()
    with path.open("rb") as file:
        while data := file.read(_AT_ONCE):
            found.update(data)
    return found.hexdigest()
