"""A watchdog: the timeout of a benchmark, kept by a thread that sleeps until it expires.

It wakes up every five seconds at most, to tell time in which the process was stopped from time in
which it hangs: some microseconds, in which the benchmark waits.
"""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from gpubench_plugin.environment import HelperThread, WakingClock, nap_s

_STDERR: Final = os.dup(2)
"""Shown even while pytest captures what tests write: this module is loaded before any test runs."""


def or_die(function: Callable[[], object]) -> None:
    """Call `function`; an error in it ends the process, with a traceback and the exit code 3.

    A thread that ends the process must not itself end unheard: then nothing would end it.
    """
    try:
        function()
    except BaseException:  # whatever it is
        with suppress(OSError):
            text = f"gpubench: this process cannot go on:\n{traceback.format_exc()}"
            os.write(_STDERR, text.encode(errors="replace"))
        os._exit(3)


class Watchdog:
    """Calls `bark` from a thread of its own when what it guards does not end in time.

    `bark` is to end the process; an error in it does so, too. Whoever comes to the end while it
    runs waits there, so that the two do not write at the same time.
    """

    def __init__(self, bark: Callable[[], None]):
        self._bark = bark
        self._lock = threading.Lock()
        self._over: threading.Event | None = None

    @contextmanager
    def guarding(self, seconds: float, clock: WakingClock | None = None) -> Iterator[None]:
        """Whatever runs inside has that much time, by a clock of its own unless one is given."""
        self._over = over = threading.Event()
        clock = clock or WakingClock()
        until = clock.now() + seconds
        HelperThread("gpubench-watchdog", self._wait, over, clock, until).start()
        try:
            yield
        finally:
            self.leave_alone()

    def leave_alone(self) -> None:
        """Guard what runs no longer: it has ended, or somebody looks at it in a debugger."""
        with self._lock:
            if self._over is not None:
                self._over.set()

    def _wait(self, over: threading.Event, clock: WakingClock, until: float) -> None:
        while (left := clock.left(until)) > 0:
            if over.wait(nap_s(left)):
                return
        with self._lock:
            if not over.is_set():
                or_die(self._bark)
