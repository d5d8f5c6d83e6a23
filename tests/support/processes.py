"""Processes that a test has started."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def is_running(pid: int | str) -> bool:
    """Whether that process is there, and more than a zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def processes_with(variable: str) -> list[int]:
    """The living processes with that ``NAME=value`` in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def wait_until(holds: Callable[[], object], within_s: float = 60.0) -> None:
    """Wait until it holds, and fail if that takes longer."""
    deadline = monotonic() + within_s
    while not holds():
        assert monotonic() < deadline
        sleep(0.01)
