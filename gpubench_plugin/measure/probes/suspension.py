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
from time import sleep
from typing import Final, Self

from gpubench_plugin.core.quality_flags import SUSPENDED
from gpubench_plugin.environment.helper_threads import HelperThread

# Size of ``struct epoll_event``: 12 or 16 by architecture, see <sys/epoll.h>.
_EVENT_BYTES: Final = 16
# Time for the thread to block in its system call: else 4 of 8 early stops were missed.
_BLOCKS_WITHIN_S: Final = 0.001


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
            sleep(_BLOCKS_WITHIN_S)
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is None:
            return
        os.eventfd_write(self._end, 1)
        self._thread.join()
        self._epoll.close()
        os.close(self._end)

    def _listen(self) -> None:
        # Signal handlers interrupt the call as well; other threads run them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        # Python's own epoll retries on EINTR (PEP 475).
        wait = ctypes.CDLL(None, use_errno=True).epoll_wait
        self._listens.set()
        while wait(self._epoll.fileno(), self._event, 1, -1) < 0:
            if ctypes.get_errno() != errno.EINTR:
                return
            self.flags = (SUSPENDED,)
