"""A process that runs a stage, and leaves no process of it behind, whatever happens.

Run as a program, it starts the command given to it, and kills that and all its descendants when it
ends, when its time is over, on SIGTERM, SIGINT or SIGHUP, and when the process that started it has
died. A stage cannot do that itself: it waits for the device in native code, and starts ranks, each
with a session of its own. Imports only the standard library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final

TIMED_OUT: Final = 124
"""Exit code after the time limit, as of timeout(1)."""

_STOPS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_AWAITED: Final = (signal.SIGCHLD, *_STOPS)
_PR_SET_PDEATHSIG: Final = 1  # prctl(2), <linux/prctl.h>
_PR_SET_CHILD_SUBREAPER: Final = 36
_POLL_S: Final = 2.0
"""Longest wait between two looks at the parent, where the kernel tells nothing of its death: few
wake-ups beside a measurement; not measured."""
_KILL_S: Final = 10.0
"""A killed process is gone at once, unless a driver holds it; not measured."""


def supervise(command: Sequence[str], *, limit_s: float, parent: int) -> int:
    """Run `command`; return its exit code, 128 and the number of its signal, or TIMED_OUT."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        library.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        preexec_fn=_begin_command,  # noqa: PLW1509 # this process has one thread
    )
    try:
        return _outcome(process, limit_s, parent)
    finally:
        _kill_descendants()


def _begin_command() -> None:
    """Let the command have the signals again, whose mask it inherits, and die with this process."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _outcome(process: subprocess.Popen[bytes], limit_s: float, parent: int) -> int:
    deadline = monotonic() + limit_s
    while (code := process.poll()) is None:
        remaining_s = deadline - monotonic()
        if remaining_s <= 0:
            return TIMED_OUT
        if os.getppid() != parent:
            return 128 + signal.SIGTERM
        event = signal.sigtimedwait(_AWAITED, min(remaining_s, _POLL_S))
        if event is not None and event.si_signo in _STOPS:
            return 128 + event.si_signo
    return code if code >= 0 else 128 - code


def _kill_descendants() -> None:
    """Kill all descendants, until none is left: orphans become children of this process."""
    deadline = monotonic() + _KILL_S
    while monotonic() < deadline:
        for pid in _descendants():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        sleep(0.01)


def _descendants() -> set[int]:
    """Process ids of all descendants; elsewhere than on Linux those of no session of their own."""
    parents = dict(_parents())
    descendants: set[int] = set()
    while new := {
        pid
        for pid, parent in parents.items()
        if pid not in descendants and (parent == os.getpid() or parent in descendants)
    }:
        descendants |= new
    return descendants


def _parents() -> Iterator[tuple[int, int]]:
    """Process ids with those of the parents (proc(5), field 4 of ``stat``)."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):  # it has ended
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            yield int(folder.name), int(fields[1])


if __name__ == "__main__":
    _, _limit_s, _parent, *_command = sys.argv
    sys.exit(supervise(_command, limit_s=float(_limit_s), parent=int(_parent)))
