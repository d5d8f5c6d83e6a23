"""CPU contention: whether other processes delayed the measuring threads.

A step on several threads waits for its slowest one. If a neighbour holds a processor, every
parallel region lasts a time slice of the scheduler: steps are many times too long, so evenly that
no confidence interval shows it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns
from typing import Final, NamedTuple, Self

SHARE: Final = 0.05
"""Share of the timed blocks spent waiting: nearly none if alone on the machine, half with a busy
neighbour on each processor, as the scheduler is fair."""

# Run time of a measuring thread as a share of the busiest one's: a pool's idle threads wake now and
# then, and their waits delay no step.
_WORKING: Final = 0.1

_TASKS: Final = Path("/proc/self/task")


class ThreadTimes(NamedTuple):
    """Running and waiting time of a thread so far, in nanoseconds."""

    ran_ns: int
    waited_ns: int


class Contention:
    """Context manager around each timed block that reads the run queue statistics.

    In every block the longest wait of a measuring thread counts, since the others wait for it.
    Measuring threads are the calling one and those that have run for at least a tenth as long as
    the busiest one since this object was created. Without Linux's ``schedstat`` (nanoseconds on the
    processor, nanoseconds waiting for one, time slices) nothing is detected.
    """

    def __init__(self, tasks: Path = _TASKS, now: Callable[[], int] = perf_counter_ns) -> None:
        self._tasks = tasks
        self._now = now
        self._own_thread = str(threading.get_native_id())
        self._initial = _accounts(tasks)
        self._waited_ns = self._blocks_ns = 0

    @property
    def is_contended(self) -> bool:
        """Whether the measuring threads waited for more than 5% of the blocks so far."""
        return self._waited_ns > SHARE * self._blocks_ns

    def __enter__(self) -> Self:
        self._at_entry, self._entered_ns = _accounts(self._tasks), self._now()
        return self

    def __exit__(self, *_: object) -> None:
        self._blocks_ns += self._now() - self._entered_ns
        after = _accounts(self._tasks)
        waits = (
            after[thread].waited_ns - self._at_entry.get(thread, _NEW).waited_ns
            for thread in self._busy_threads(after)
        )
        self._waited_ns += max(waits, default=0)

    def _busy_threads(self, accounts: dict[str, ThreadTimes]) -> list[str]:
        run_time = {
            thread: account.ran_ns - self._initial.get(thread, _NEW).ran_ns
            for thread, account in accounts.items()
        }
        threshold = _WORKING * max(run_time.values(), default=0)
        return [
            thread
            for thread in run_time
            if thread == self._own_thread or run_time[thread] >= threshold > 0
        ]


_NEW: Final = ThreadTimes(0, 0)


def _accounts(tasks: Path) -> dict[str, ThreadTimes]:
    """Accounts of all threads; those that end meanwhile are left out."""
    accounts = {}
    with suppress(OSError):
        for thread in os.listdir(tasks):  # noqa: PTH208 # no Path per thread in every block
            with suppress(OSError, ValueError, IndexError):
                accounts[thread] = _account(f"{tasks}/{thread}/schedstat")
    return accounts


def _account(file: str) -> ThreadTimes:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        ran_ns, waited_ns, *_ = os.read(descriptor, 100).split()
    finally:
        os.close(descriptor)
    return ThreadTimes(int(ran_ns), int(waited_ns))
