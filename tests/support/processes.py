"""Processes that a test has started."""

from __future__ import annotations

from pathlib import Path


def is_running(pid: int | str) -> bool:
    """Whether that process is there, and more than a zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
