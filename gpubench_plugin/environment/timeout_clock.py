"""Clock for timeouts that does not count time while the guarded process is suspended.

``CLOCK_MONOTONIC`` advances while a process is stopped (SIGSTOP, Ctrl-Z, a debugger) or frozen
(cgroup freezer), and Linux does not report for how long. So a waiting process polls the clock, and
an interval between two polls counts only up to its intended length.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Final

from gpubench_plugin.environment.process_identity import STATE, stat_fields

MAX_STOPPED_S: Final = 3600.0
"""Total time for which a peer may be stopped before it counts: a long debugging session."""

_MAX_POLL_S: Final = 5.0
_MIN_POLL_S: Final = 0.05
"""Between a prompt end of short timeouts and few wake-ups of long ones; not measured."""
_POLLS: Final = 20
"""Polls of the remaining time: a stop costs at most a twentieth of the timeout."""
_MIN_STEP_S: Final = 0.01
"""Readings closer together count as one: checking a peer costs some 20 µs."""


class TimeoutClock:
    """Thread-safe count of seconds in which neither this process nor a peer was stopped.

    To be read at least every :func:`poll_interval_s` of the remaining time. Late wake-ups on a busy
    machine count one interval each. `stopped` tells whether a peer is stopped now; `now` is a
    monotonic clock in seconds.
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
        self._max_step_s = _MAX_POLL_S
        self._awake_s = 0.0
        self._stopped_s = 0.0

    def now(self) -> float:
        """Seconds since the clock was created."""
        with self._lock:
            return self._update()

    def remaining(self, until: float) -> float:
        """Seconds until this clock reaches `until`, at least zero."""
        with self._lock:
            remaining = max(0.0, until - self._update())
            self._max_step_s = _poll_s(remaining)
            return remaining

    def _update(self) -> float:
        current = self._now()
        if current - self._last_reading >= _MIN_STEP_S:
            elapsed, self._last_reading = (
                min(current - self._last_reading, self._max_step_s),
                current,
            )
            if self._stopped_s < MAX_STOPPED_S and self._stopped():
                self._stopped_s += elapsed
            else:
                self._awake_s += elapsed
        return self._awake_s


def poll_interval_s(remaining_s: float) -> float:
    """Longest sleep before the next check, given the seconds left."""
    return min(remaining_s, _poll_s(remaining_s))


def is_stopped(pid: int) -> bool:
    """Whether the process is stopped by a signal or debugger (Linux; elsewhere False)."""
    fields = stat_fields(pid)
    return fields is not None and fields[STATE] in {"T", "t"}


def _poll_s(remaining_s: float) -> float:
    return max(_MIN_POLL_S, min(_MAX_POLL_S, remaining_s / _POLLS))
