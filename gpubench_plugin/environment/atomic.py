"""Results written whole, or not at all, with one clear message where they cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.environment import json_text, whole_file
from gpubench_plugin.errors import ResultsError

if TYPE_CHECKING:
    from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write `text` in UTF-8 to `path`, durably; a symbolic link there is replaced, not followed.

    Raises:
        ResultsError: it could not be written; what stood at `path` before is intact.
    """
    data = text.encode("utf-8", "backslashreplace")
    try:
        whole_file.write(path, lambda file: file.write(data))
    except OSError as error:
        raise not_written(path, error) from error


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
        whole_file.sync_folder(path.parent)
    except OSError as error:
        raise ResultsError(f"{path} was not removed: {error.strerror}") from error


def not_written(path: Path, error: OSError) -> ResultsError:
    """The error for a result that the operating system did not take."""
    reason = error.strerror or str(error)
    return ResultsError(f"{path} was not written: {reason}; what was written before is intact")
