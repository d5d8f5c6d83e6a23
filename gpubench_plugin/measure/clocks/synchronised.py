"""The clock of devices whose events cannot be trusted: the host waits at every boundary."""

from __future__ import annotations

from array import array
from itertools import pairwise
from time import perf_counter_ns
from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.clocks.base import Block, Clock, HostClock, Task, repeated

if TYPE_CHECKING:
    from collections.abc import Callable


class SynchronisedClock(Clock):
    """Times groups of calls on the host's clock, waiting for the device after each group.

    For MPS, where waiting for single events can hang, and XPU. A wait costs much more than a
    reading of the clock, so that calls are timed together until a group lasts long enough.
    With a setup or teardown every call is waited for, and bears that cost.

    Args:
        synchronize: waits until the device has done all it was given.
        timer: the name under which samples are recorded.
        now: the host's clock in nanoseconds.
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
