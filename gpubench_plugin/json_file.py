"""A JSON file from anywhere, read with one clear message for each way in which it can be bad."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.errors import ResultsError, UsageProblem, nearest

if TYPE_CHECKING:
    from pathlib import Path

LIMIT_BYTES: Final = 1 << 30
"""No file of results is larger; what is larger is not read at all."""


def load(path: Path, *, limit: int = LIMIT_BYTES) -> Any:
    """What the JSON file at `path` holds; NaN and infinities, which are no JSON, are floats.

    Raises:
        UsageProblem: there is no such file, or it is empty, cut off, nested without end, larger
            than `limit` bytes, or no JSON.
        ResultsError: the operating system does not let it be read.
    """
    try:
        _refuse_what_is_no_file(path, limit)
        data = path.read_bytes()
    except FileNotFoundError:
        raise UsageProblem(f"{path}: no such file{_beside(path)}") from None
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error.strerror}") from error
    if not data.strip():
        raise UsageProblem(f"{path} is empty")
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise UsageProblem(f"{path} {_why(error)}") from None
    except ValueError:  # of the text's encoding, or a number of thousands of digits
        raise UsageProblem(f"{path} is not JSON: it is no text, or holds endless numbers") from None
    except RecursionError:
        raise UsageProblem(f"{path} is nested too deeply to be a file of results") from None
    except MemoryError:
        raise UsageProblem(f"{path} does not fit into memory") from None


def _refuse_what_is_no_file(path: Path, limit: int) -> None:
    """A pipe would block, a huge file would fill the memory."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise UsageProblem(f"{path} is no regular file")
    if found.st_size > limit:
        raise UsageProblem(
            f"{path} has {found.st_size} bytes; files of more than {limit} are not read"
        )


def _beside(path: Path) -> str:
    """The name nearest to the missing one, in its folder."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return ""
    return nearest(path.name, names)


def _why(error: json.JSONDecodeError) -> str:
    at_end = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")
    if at_end and error.doc.lstrip()[:1] in {"{", "["}:
        return f"was cut off: the JSON ends in the middle, at line {error.lineno}"
    return f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
