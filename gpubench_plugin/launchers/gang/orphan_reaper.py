"""Helper process that kills a gang's process groups if the controller dies.

A rank dies with its controller by itself (:func:`.die_with_parent`); its children, as the workers
of a data loader, do not. Run as a program, this blocks until the end of its input.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

_DISMISSED: Final = "done"


class OrphanReaper:
    """Kills the guarded process groups unless it is dismissed."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],  # no site: starts within milliseconds
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )

    def guard(self, group: int) -> None:
        """Kill the process group `group`, too."""
        self._write(str(group))

    def dismiss(self) -> None:
        """Exit without killing anything; idempotent."""
        self._write(_DISMISSED)
        self._process.communicate()

    def _write(self, line: str) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            with suppress(BrokenPipeError):  # it was killed
                self._process.stdin.write(f"{line}\n")
                self._process.stdin.flush()


def wait_and_kill(lines: Iterable[str]) -> None:
    """Read process group ids from `lines`, and kill them at end of input."""
    groups: list[int] = []
    for line in lines:
        if line.strip() == _DISMISSED:
            return
        groups.append(int(line))
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    wait_and_kill(sys.stdin)
