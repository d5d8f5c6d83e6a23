"""A limit on how long a benchmark may take, kept by a thread that sleeps until then.

It wakes up every five seconds at most, to tell time in which the process was stopped from time in
which it hangs: some microseconds, in which the benchmark waits.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpubench_plugin.environment.waking_clock import WakingClock, nap_s
from gpubench_plugin.launchers.last_words import or_die

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
        threading.Thread(
            target=self._wait,
            args=(over, clock, clock.now() + seconds),
            name="gpubench-watchdog",
            daemon=True,
        ).start()
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
