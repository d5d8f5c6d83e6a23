"""What kept the process from running: other processes, and stops.

*Contention*: a step on several threads waits for its slowest one. If a neighbour holds a processor,
every parallel region lasts a time slice of the scheduler: steps are many times too long, so evenly
that no confidence interval shows it. Threads, ranks and children of the benchmark itself, more of
them than processors, wait alike, but for each other: that is what they cost wherever they run.

*Suspension* by SIGSTOP, Ctrl-Z, a debugger, freezing, or sleep: the system keeps no readable record
of it. But ``epoll_wait`` returns with ``EINTR`` each time the process continues after a stop,
whatever stopped it; see signal(7), "Interruption of system calls and library functions by stop
signals". Until then the thread is blocked in the kernel and costs nothing, and no signal handler is
needed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from time import clock_gettime_ns, perf_counter_ns, sleep
from typing import Final, NamedTuple, Self

from gpubench_plugin.core.quality_flags import CONTENDED, DESCHEDULED, OVERSUBSCRIBED, SUSPENDED
from gpubench_plugin.environment.hardware import usable_cores
from gpubench_plugin.system.child_process import child_pids
from gpubench_plugin.system.helper_threads import HelperThread

SHARE: Final = 0.05
"""Share of the timed blocks spent waiting: nearly none if alone on the machine, half with a busy
neighbour on each processor, as the scheduler is fair."""

# Share that is noted: interrupts take less.
_NOTABLE: Final = 0.02

# Run time of a measuring thread as a share of the busiest one's: a pool's idle threads wake now and
# then, and their waits delay no step.
_WORKING: Final = 0.1

_TASKS = Path("/proc/self/task")

# Of a line of a processor in /proc/stat: idle, with or without a wait for a disk, and interrupts.
_IDLE: Final = slice(4, 8)
_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PROCESS_CLOCK: Final = 2
"""Kind of a clock, in the lowest bits of its id; the others are those of the process, inverted."""


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

    `ranks` are the benchmark's processes on this host, by default this one: what they and this
    one's children run is nobody else's work.
    """

    def __init__(self, *ranks: int) -> None:
        self._own_thread = str(threading.get_native_id())
        self._initial = thread_times()
        self._waited_ns = self._blocks_ns = 0
        self._has_several_threads = False
        self._ranks = ranks or (os.getpid(),)
        self._at_start = _cpu_times(self._ranks)

    @property
    def flags(self) -> tuple[str, ...]:
        """``contended`` where threads waited for others for more than 5% of the blocks so far.

        ``descheduled`` where they did for less; ``oversubscribed`` where they waited as long and
        are several, or waited for no others.
        """
        if self._waited_ns <= SHARE * self._blocks_ns:
            return (DESCHEDULED,) if self._waited_for_others(_NOTABLE) else ()
        contended = (CONTENDED,) if self._waited_for_others(SHARE) else ()
        own = (OVERSUBSCRIBED,) if self._has_several_threads or not contended else ()
        return (*contended, *own)

    def _waited_for_others(self, share: float) -> bool:
        """Whether that `share` was waited; nothing waits for others for longer than they run."""
        if self._waited_ns <= share * self._blocks_ns:
            return False
        now = _cpu_times(self._ranks)
        wall_ns, known_ns = (end - start for end, start in zip(now, self._at_start, strict=True))
        return len(usable_cores()) * wall_ns - known_ns > share * wall_ns

    def __enter__(self) -> Self:
        self._entered_ns, self._at_entry = perf_counter_ns(), thread_times()
        return self

    def __exit__(self, *_: object) -> None:
        after = thread_times()
        self._blocks_ns += perf_counter_ns() - self._entered_ns
        busy = self._busy_threads(after)
        waits = (
            after[thread].waited_ns - self._at_entry.get(thread, _NEW).waited_ns for thread in busy
        )
        self._has_several_threads |= len(self._ranks) == 1 and len(busy) > 1
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


def thread_times() -> dict[str, ThreadTimes]:
    """Times of all threads by native id, from ``schedstat``; ones that end now are left out."""
    accounts = {}
    with suppress(OSError):
        # Before and after every timed block, so without a Path per thread.
        for thread in os.listdir(_TASKS):  # noqa: PTH208
            with suppress(OSError, ValueError):
                ran_ns, waited_ns, *_ = _read(f"{_TASKS}/{thread}/schedstat").split()
                accounts[thread] = ThreadTimes(int(ran_ns), int(waited_ns))
    return accounts


def _cpu_times(ranks: tuple[int, ...]) -> tuple[int, int]:
    """Nanoseconds that have passed, and those in which our processors idled or ran the `ranks`.

    With the children of this one, also those that have ended. See clock_getcpuclockid(3), and
    proc(5) of ``/proc/stat``.
    """
    known_ns = sum(round(1e9 * spent_s) for spent_s in os.times()[2:4])
    for pid in (*ranks, *child_pids()):
        with suppress(OSError):  # it has just ended
            known_ns += clock_gettime_ns(~pid << 3 | _PROCESS_CLOCK)
    with suppress(OSError, KeyError):  # the system has no such accounts
        lines = map(bytes.split, _read("/proc/stat", 1 << 18).splitlines())
        ticks = {line[0]: sum(map(int, line[_IDLE])) for line in lines if line}
        known_ns += sum(ticks[b"cpu%d" % core] for core in usable_cores()) * _TICK_NS
    return perf_counter_ns(), known_ns


def _read(path: str, most_bytes: int = 256) -> bytes:
    """A small file, without an object that Ctrl-C could leave open, which Python warns of."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, most_bytes)
    finally:
        os.close(descriptor)


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
