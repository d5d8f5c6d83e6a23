"""Time that counts against a limit: that in which whoever is limited could run.

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


class WakingClock:
    """Seconds in which this process could run and nobody that it waits for was stopped.

    To be read at least every :func:`nap_s` of what is left. A process on a busy machine, which
    wakes up late again and again, does count: one nap for each. From any thread. `stopped` says
    whether somebody who is waited for is stopped now; `now` is in seconds and never goes back.
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
        self._last = now()
        self._longest = _LONGEST_NAP_S
        self._awake = 0.0
        self._waited_for_stopped = 0.0

    def now(self) -> float:
        """Seconds since the clock was made."""
        with self._lock:
            return self._look()

    def left(self, until: float) -> float:
        """Seconds until this clock shows `until`, at least zero."""
        with self._lock:
            left = max(0.0, until - self._look())
            self._longest = _nap_s(left)
            return left

    def _look(self) -> float:
        now = self._now()
        if now - self._last >= _ONE_LOOK_S:
            passed, self._last = min(now - self._last, self._longest), now
            if self._waited_for_stopped < LONGEST_STOP_S and self._stopped():
                self._waited_for_stopped += passed
            else:
                self._awake += passed
        return self._awake


def nap_s(left: float) -> float:
    """How long to wait at most before the next look where so many seconds are left."""
    return min(left, _nap_s(left))


def is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger keeps the process from running (Linux; elsewhere never)."""
    fields = stat_fields(pid)
    return fields is not None and fields[STATE] in {"T", "t"}


def _nap_s(left: float) -> float:
    return max(_SHORTEST_NAP_S, min(_LONGEST_NAP_S, left / _NAPS))
