"""Files that appear whole or not at all: temporary file, fsync, rename."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from gpubench_plugin.errors import ResultsError
from gpubench_plugin.results import json_text

if TYPE_CHECKING:
    from pathlib import Path

_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def write_text(path: Path, text: str) -> None:
    """Write `text` in UTF-8 to `path`, durably; a symbolic link there is replaced, not followed.

    Raises:
        ResultsError: it could not be written; what stood at `path` before is intact.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        write_new(temporary, text.encode("utf-8", "backslashreplace"))
        temporary.replace(path)
        sync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise not_written(path, error) from error
        raise


def write_json(path: Path, value: object) -> None:
    """Write `value` to `path` as indented JSON.

    Raises:
        ResultsError: as :func:`write_text`.
    """
    write_text(path, json_text.text(value, indent=2) + "\n")


def remove(path: Path) -> None:
    """Remove the file `path`, durably; where there is none, do nothing.

    Raises:
        ResultsError: it could not be removed.
    """
    try:
        path.unlink(missing_ok=True)
        sync_folder(path.parent)
    except OSError as error:
        raise ResultsError(f"{path} was not removed: {error.strerror}") from error


def write_new(path: Path, data: bytes) -> None:
    """Write `data`, durably, to `path`, which must not exist; raises OSError."""
    # The mode of an ordinary new file: tempfile's 0600 would hide results from colleagues.
    with os.fdopen(os.open(path, _NEW_FILE, 0o666), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable: a file's own fsync does not cover its name."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def not_written(path: Path, error: OSError) -> ResultsError:
    """The error for a result that the operating system did not take."""
    reason = error.strerror or str(error)
    return ResultsError(f"{path} was not written: {reason}; what was written before is intact")
