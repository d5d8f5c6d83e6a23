"""Clock for timeouts that does not count time while this process is suspended.

``CLOCK_MONOTONIC`` advances while a whole job is stopped (``scontrol suspend``, Ctrl-Z) or frozen,
which is no hang, and Linux does not report for how long. So a waiting process polls the clock, and
an interval between two polls counts only up to its intended length.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic, sleep
from typing import Final

# Between a prompt end of short timeouts and few wake-ups of long ones.
_MIN_POLL_S: Final = 0.05
_MAX_POLL_S: Final = 5.0
# Polls of the remaining time: a stop costs at most a twentieth of the timeout.
_POLLS: Final = 20

# Pauses double from one to the other: quick for short waits, few requests in long ones.
_SHORTEST_PAUSE_S: Final = 0.0002
LONGEST_PAUSE_S: Final = 0.02


class TimeoutClock:
    """Thread-safe count of seconds in which this process was not suspended.

    To be read at least every :func:`poll_interval_s` of the remaining time. Late wake-ups on a busy
    machine count one interval each. `now` is a monotonic clock in seconds.
    """

    def __init__(self, now: Callable[[], float] = monotonic):
        self._now = now
        self._lock = threading.Lock()
        self._last_reading = now()
        self._max_step_s = _MAX_POLL_S
        self._awake_s = 0.0

    def now(self) -> float:
        """Seconds since the clock was created."""
        with self._lock:
            return self._update()

    def remaining(self, until: float) -> float:
        """Seconds until this clock reaches `until`, at least zero."""
        with self._lock:
            remaining = max(0.0, until - self._update())
            self._max_step_s = max(_MIN_POLL_S, poll_interval_s(remaining))
            return remaining

    def _update(self) -> float:
        current = self._now()
        self._awake_s += min(current - self._last_reading, self._max_step_s)
        self._last_reading = current
        return self._awake_s


def poll_interval_s(remaining_s: float) -> float:
    """Longest sleep before the next check, given the seconds left."""
    return min(remaining_s, max(_MIN_POLL_S, min(_MAX_POLL_S, remaining_s / _POLLS)))


def wait_until(
    is_done: Callable[[], bool],
    remaining_s: Callable[[], float],
    longest_pause_s: float = LONGEST_PAUSE_S,
) -> bool:
    """Poll until `is_done` or no time is left; return whether it is done.

    The last poll is after the timeout, since this process may have been stopped meanwhile.
    """
    pause = _SHORTEST_PAUSE_S
    while not is_done():
        remaining = remaining_s()
        if remaining <= 0:
            return is_done()
        sleep(min(pause, remaining))
        pause = min(2 * pause, longest_pause_s)
    return True
