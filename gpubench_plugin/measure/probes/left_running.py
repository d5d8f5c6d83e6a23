"""Threads and child processes that calls leave behind: their work is not in the timed calls."""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

_LIBRARIES: Final = frozenset({"torch", "gpubench_plugin"})
_COMMAND: Final = re.compile(rb"(?s)(?!.*(torch/_inductor|multiprocessing\.resource_tracker)).")
"""Of a process that runs, and that no library keeps for itself."""


def running() -> frozenset[str]:
    """Python's threads by name, and child processes by id (Linux), that run now."""
    names = set()
    for thread in threading.enumerate():
        target = getattr(thread, "_target", None) or thread  # its end removes it
        if str(target.__module__).partition(".")[0] not in _LIBRARIES:
            names.add(f"thread {thread.name}")
    for children in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # it has just ended
            for pid in children.read_text().split():
                if _COMMAND.match(Path(f"/proc/{pid}/cmdline").read_bytes()):
                    names.add(f"process {pid}")
    return frozenset(names)
