"""A small process beside a gang: when the controller dies, it ends what the ranks had started.

A rank dies with its controller by itself; its loaders of data, for example, do not.
Run as a program, this waits in the kernel for the end of its input.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

_ALL_IS_WELL: Final = "done"


class Warden:
    """Kills the process groups it has to :meth:`guard`, unless this process can dismiss it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],  # no site: it is there in milliseconds
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )

    def guard(self, group: int) -> None:
        """Kill the process group with that number, too."""
        self._tell(str(group))

    def dismiss(self) -> None:
        """Nothing needs to be killed any more; a second time does nothing."""
        self._tell(_ALL_IS_WELL)
        self._process.communicate()

    def _tell(self, line: str) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            with suppress(BrokenPipeError):  # somebody has killed it
                self._process.stdin.write(f"{line}\n")
                self._process.stdin.flush()


def wait_and_kill(lines: Iterable[str]) -> None:
    """Take the numbers of process groups from `lines`; at their end, kill these."""
    groups: list[int] = []
    for line in lines:
        if line.strip() == _ALL_IS_WELL:
            return
        groups.append(int(line))
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    wait_and_kill(sys.stdin)
