"""Watchdog: a thread that ends this process when a block of code takes too long.

It wakes up every five seconds at most, so that time in which the process is stopped does not count;
each time costs the block some microseconds.
"""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from gpubench_plugin.system.helper_threads import HelperThread
from gpubench_plugin.system.timeout_clock import TimeoutClock, poll_interval_s

STDERR: Final = os.dup(2)
"""The terminal even while pytest captures: this module is imported before any test runs."""


class Watchdog:
    """Calls `on_timeout` from its own thread when the guarded block times out.

    `on_timeout` must end the process, unless that is being done, and an error in it does. A block
    that finishes meanwhile waits for it, so that the two do not write at the same time.
    """

    def __init__(self, on_timeout: Callable[[], None]):
        self._on_timeout = on_timeout
        self._lock = threading.RLock()  # what ends the session may cancel, too
        self._finished: threading.Event | None = None

    def start(self, seconds: float) -> None:
        """Start a timeout, until it is cancelled."""
        self._finished = finished = threading.Event()
        HelperThread("gpubench-watchdog", self._wait, finished, seconds).start()

    @contextmanager
    def guarding(self, seconds: float) -> Iterator[None]:
        """Guard a block with a timeout."""
        self.start(seconds)
        try:
            yield
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Cancel the timeout; afterwards it cannot fire."""
        with self._lock:
            if self._finished is not None:
                self._finished.set()

    def _wait(self, finished: threading.Event, seconds: float) -> None:
        clock = TimeoutClock()
        while (remaining_s := clock.remaining(seconds)) > 0:
            if finished.wait(poll_interval_s(remaining_s)):
                return
        with self._lock:
            if finished.is_set():
                return
            try:
                self._on_timeout()
            except BaseException:  # if it failed silently, nothing would end the process
                with suppress(OSError):
                    text = f"gpubench: fatal error in a helper thread:\n{traceback.format_exc()}"
                    os.write(STDERR, text.encode(errors="replace"))
                os._exit(3)
