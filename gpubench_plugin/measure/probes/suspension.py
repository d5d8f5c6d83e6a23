"""Detection of suspension: SIGSTOP, Ctrl-Z, a debugger, freezing, or sleep.

The system keeps no readable record of it. But ``epoll_wait`` returns with ``EINTR`` each time the
process continues after a stop, whatever stopped it; see signal(7), "Interruption of system calls
and library functions by stop signals". Until then the thread is blocked in the kernel and costs
nothing, and no signal handler is needed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import sys
import threading
from pathlib import Path
from time import monotonic, sleep
from typing import Final, Self

from gpubench_plugin.core.quality_flags import SUSPENDED
from gpubench_plugin.environment.helper_threads import HelperThread

_EVENT_BYTES: Final = 16
"""Size of ``struct epoll_event``: 12 or 16 by architecture, see <sys/epoll.h>."""
_BLOCKED_WITHIN_S: Final = 0.1
"""Time for the thread to block: microseconds, or milliseconds on a busy machine."""


class Suspension:
    """Context manager that detects every stop while it is active (Linux only)."""

    def __init__(self) -> None:
        self.flags: tuple[str, ...] = ()
        self._listens = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if sys.platform == "linux":
            self._epoll = select.epoll()
            self._end = os.eventfd(0, os.EFD_CLOEXEC)
            self._event = ctypes.create_string_buffer(_EVENT_BYTES)
            self._epoll.register(self._end, select.EPOLLIN)
            self._thread = HelperThread("gpubench-suspension", self._listen)
            self._thread.start()
            self._listens.wait()
            self._await_kernel(self._thread)
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is None:
            return
        os.eventfd_write(self._end, 1)
        self._thread.join()
        self._epoll.close()
        os.close(self._end)

    def _await_kernel(self, thread: threading.Thread) -> None:
        """Wait until the thread blocks in its system call: else 4 of 8 early stops were missed."""
        buffer = f"{ctypes.addressof(self._event):#x}"
        deadline = monotonic() + _BLOCKED_WITHIN_S
        while monotonic() < deadline:
            try:
                call = Path(f"/proc/self/task/{thread.native_id}/syscall").read_text("ascii")
            except OSError:  # the kernel does not report it
                return
            if buffer in call.split():  # the call's number and arguments, or "running"
                return
            sleep(0)

    def _listen(self) -> None:
        # Signal handlers interrupt the call as well; other threads run them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        wait = ctypes.CDLL(
            None, use_errno=True
        ).epoll_wait  # Python's own retries on EINTR (PEP 475)
        self._listens.set()
        while wait(self._epoll.fileno(), self._event, 1, -1) < 0:
            if ctypes.get_errno() != errno.EINTR:
                return
            self.flags = (SUSPENDED,)
