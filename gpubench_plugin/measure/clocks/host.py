"""Clocks that read the host's time at every boundary: of a CPU, and of devices without events."""

from __future__ import annotations

import resource
from array import array
from collections.abc import Callable, Mapping
from itertools import pairwise
from time import perf_counter_ns, process_time_ns
from typing import ClassVar, NamedTuple

import numpy as np

from gpubench_plugin.flags import DESCHEDULED
from gpubench_plugin.measure.clocks.base import Block, Clock, HostClock, Step, Task, repeated

# Below this share of processor time per wall time a single-threaded step was kept from running.
_RUNNING_SHARE = 0.98

# The calling thread's own context switches where the system counts them, else the process's.
_WHO = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


class Usage(NamedTuple):
    """Processor time of the process, and switches away from it, willing and unwilling."""

    cpu_ns: int
    voluntary: int
    involuntary: int


def usage() -> Usage:
    """What has been used so far."""
    counts = resource.getrusage(_WHO)
    return Usage(process_time_ns(), counts.ru_nvcsw, counts.ru_nivcsw)


class CpuClock(Clock):
    """Times every call, or groups of calls where one alone is too short.

    Consecutive calls share the reading between them: half as many readings as a pair per call,
    and no time falls between two samples. Usage is read once per block (a reading costs several
    times what a short step does). Only where torch computes on `one_thread` can processor time tell
    that the step was descheduled.
    """

    timer = "perf_counter_ns"
    accelerator: ClassVar[bool] = False
    group_below_s = 5e-6
    group_s: ClassVar[float] = 5e-5

    def __init__(
        self,
        now: HostClock = perf_counter_ns,
        *,
        one_thread: bool = False,
        used: Callable[[], Usage] = usage,
    ) -> None:
        super().__init__(now)
        self._one_thread = one_thread
        self._used = used

    def block(self, task: Task, *, durations: int, calls_per_duration: int = 1) -> Block:
        """Time the calls, the usage of the processor around them all."""
        stamps = [0] * (durations + 1)
        before, start = self._used(), self.now()
        if task.bare:
            self._boundaries(repeated(task.step, calls_per_duration), stamps)
        else:
            self._apart(task, stamps)
        end, after = self.now(), self._used()
        durations_s = np.diff(np.array(stamps)) * (1e-9 / calls_per_duration)
        return Block(
            durations_s=array("d", durations_s.tobytes()),
            length_s=(stamps[-1] - stamps[0]) * 1e-9,
            calls=durations * calls_per_duration,
            evidence={
                "calls": durations * calls_per_duration,
                "wall_ns": end - start,
                "cpu_ns": after.cpu_ns - before.cpu_ns,
                "voluntary_switches": after.voluntary - before.voluntary,
                "involuntary_switches": after.involuntary - before.involuntary,
            },
        )

    def flags(self, evidence: Mapping[str, float]) -> tuple[str, ...]:
        """``descheduled``: the system took the processor away from a step that wanted it.

        A step that waits by itself (it sleeps, reads, or hands work to other threads) gives the
        processor up at least once per call and is not meant.
        """
        kept_waiting = evidence["cpu_ns"] < _RUNNING_SHARE * evidence["wall_ns"]
        waits = evidence["voluntary_switches"] >= evidence["calls"]
        interrupted = evidence["involuntary_switches"] > 0
        descheduled = self._one_thread and kept_waiting and interrupted and not waits
        return (DESCHEDULED,) if descheduled else ()

    def _boundaries(self, step: Step, stamps: list[int]) -> None:
        """Fill `stamps` with the readings before the first call and after every call."""
        now, indices, result = self.now, range(1, len(stamps)), self.taken()
        stamps[0] = now()
        for index in indices:
            result = None
            result = step()
            stamps[index] = now()
        self.result = result

    def _apart(self, task: Task, stamps: list[int]) -> None:
        """Fill `stamps` with the running sum of the timed calls, setup and teardown left out."""
        step, before, after, now = task.step, task.before, task.after, self.now
        result = self.taken()
        for index in range(1, len(stamps)):
            before()
            start = now()
            result = None
            result = step()
            end = now()
            after()
            stamps[index] = stamps[index - 1] + end - start
        self.result = result


class SynchronisedClock(Clock):
    """Times groups of calls, waiting for the device after each group.

    For devices whose events cannot be trusted: MPS, where waiting for single events can hang, and
    XPU. A wait costs much more than a
    reading of the clock, so that calls are timed together until a group lasts long enough.
    With a setup or teardown every call is waited for, and bears that cost.
    """

    group_below_s = 0.05
    group_s: ClassVar[float] = 0.05

    def __init__(
        self,
        synchronize: Callable[[], object],
        *,
        timer: str,
        now: HostClock = perf_counter_ns,
    ) -> None:
        super().__init__(now)
        self.timer = timer
        self._wait = synchronize

    def synchronize(self) -> None:
        """Wait for the device."""
        self._wait()

    def block(self, task: Task, *, durations: int, calls_per_duration: int = 1) -> Block:
        """Time the groups, waiting after each."""
        if task.bare:
            lengths = self._boundaries(task, durations, calls_per_duration)
        else:
            lengths = [self.first(task) for _ in range(durations)]
        return Block(
            durations_s=array("d", (length / calls_per_duration for length in lengths)),
            length_s=sum(lengths),
            calls=durations * calls_per_duration,
        )

    def _boundaries(self, task: Task, durations: int, calls_per_duration: int) -> list[float]:
        run, wait, now = repeated(task.step, calls_per_duration), self._wait, self.now
        stamps, result = [0] * (durations + 1), self.taken()
        wait()
        stamps[0] = now()
        for index in range(1, durations + 1):
            result = None
            result = run()
            wait()
            stamps[index] = now()
        self.result = result
        return [(end - start) * 1e-9 for start, end in pairwise(stamps)]
