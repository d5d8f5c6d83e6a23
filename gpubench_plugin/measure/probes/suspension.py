"""Detection of suspension: SIGSTOP, Ctrl-Z, a debugger, freezing, or sleep.

No account of it is kept by the system that one could read. But a thread that waits in
``epoll_wait`` comes back with ``EINTR`` each time the process goes on after a stop, whatever had
stopped it; see signal(7), "Interruption of system calls and library functions by stop signals".
Until then it is blocked in the kernel and costs nothing, and no handler is taken from anybody.
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

from gpubench_plugin.environment import HelperThread
from gpubench_plugin.flags import SUSPENDED

_EVENT_BYTES: Final = 16
"""``struct epoll_event`` takes 12 or 16, by the processor: <sys/epoll.h>."""
_BLOCKED_WITHIN_S: Final = 0.1
"""Where the thread does not come to its call within this time, it is not waited for any longer."""


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
        """Wait until the thread blocks in its system call, before which a stop would be missed.

        It still has to get there when it has said that it listens, which takes it some
        microseconds, or milliseconds on a busy machine: 4 of 8 stops at once were missed there.
        """
        buffer = f"{ctypes.addressof(self._event):#x}"
        deadline = monotonic() + _BLOCKED_WITHIN_S
        while monotonic() < deadline:
            try:
                call = Path(f"/proc/self/task/{thread.native_id}/syscall").read_text("ascii")
            except OSError:  # the kernel does not tell
                return
            if buffer in call.split():  # its number and arguments; "running" where there is none
                return
            sleep(0)

    def _listen(self) -> None:
        # A handler of a signal interrupts, too; there are other threads to run it.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        wait = ctypes.CDLL(None, use_errno=True).epoll_wait  # Python's own begins anew by itself
        self._listens.set()
        while wait(self._epoll.fileno(), self._event, 1, -1) < 0:
            if ctypes.get_errno() != errno.EINTR:
                return
            self.flags = (SUSPENDED,)
