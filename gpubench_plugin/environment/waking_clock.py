"""Clock for timeouts that does not count time while the guarded process is suspended.

``CLOCK_MONOTONIC`` goes on while a process is stopped (SIGSTOP, Ctrl-Z, a debugger) or frozen (the
cgroup's freezer), and nothing in the system counts how long it was. So whoever waits looks at the
clock again and again: of the time between two looks no more counts than was to pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Final

from gpubench_plugin.environment.process_identity import STATE, stat_fields

LONGEST_STOP_S: Final = 3600.0
"""A process that is waited for may be stopped so long in all; from then on the time counts."""

_LONGEST_NAP_S: Final = 5.0
_SHORTEST_NAP_S: Final = 0.05
_NAPS: Final = 20
"""A look each twentieth of the time left: a stop costs the limit no more than that."""
_ONE_LOOK_S: Final = 0.01
"""Looks nearer to each other are one: a look at other processes costs some 20 µs for each."""


class TimeoutClock:
    """Seconds in which this process ran and none of its peers was stopped.

    To be read at least every :func:`poll_interval_s` of what is left. A process on a busy machine,
    which wakes up late again and again, does count: one nap for each. From any thread. `stopped`
    says whether somebody who is waited for is stopped now; `now` is in seconds and never goes back.
    """

    def __init__(
        self,
        *,
        stopped: Callable[[], bool] = lambda: False,
        now: Callable[[], float] = monotonic,
    ):
        self._stopped = stopped
        self._now = now
        self._lock = threading.Lock()
        self._last_reading = now()
        self._max_step_s = _LONGEST_NAP_S
        self._awake = 0.0
        self._waited_for_stopped = 0.0

    def now(self) -> float:
        """Seconds since the clock was created."""
        with self._lock:
            return self._update()

    def remaining(self, until: float) -> float:
        """Seconds until this clock reaches `until`, at least zero."""
        with self._lock:
            remaining = max(0.0, until - self._update())
            self._max_step_s = _nap_s(remaining)
            return remaining

    def _update(self) -> float:
        current = self._now()
        if current - self._last_reading >= _ONE_LOOK_S:
            elapsed, self._last_reading = (
                min(current - self._last_reading, self._max_step_s),
                current,
            )
            if self._waited_for_stopped < LONGEST_STOP_S and self._stopped():
                self._waited_for_stopped += elapsed
            else:
                self._awake += elapsed
        return self._awake


def poll_interval_s(remaining_s: float) -> float:
    """Longest sleep before the next check, given the seconds left."""
    return min(remaining_s, _nap_s(remaining_s))


def is_stopped(pid: int) -> bool:
    """Whether the process is stopped by a signal or debugger (Linux; elsewhere False)."""
    fields = stat_fields(pid)
    return fields is not None and fields[STATE] in {"T", "t"}


def _nap_s(remaining_s: float) -> float:
    return max(_SHORTEST_NAP_S, min(_LONGEST_NAP_S, remaining_s / _NAPS))
