"""Clocks that read the host's time: for CPUs, and for devices without reliable events."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import pairwise
from time import perf_counter_ns
from typing import ClassVar

import numpy as np

from gpubench_plugin.measure.clocks.base import Block, Clock, HostClock, Step, Task, repeat_call


class CpuClock(Clock):
    """Times every call, or groups of calls if single ones are too short.

    Consecutive calls share the reading between them, so that no time falls between two samples.
    """

    timer = "perf_counter_ns"
    accelerator: ClassVar[bool] = False
    # Long beside a reading of the clock, some tens of nanoseconds.
    group_threshold_s = 5e-6
    group_s: ClassVar[float] = 5e-5

    def block(self, task: Task, *, durations: int, calls_per_duration: int = 1) -> Block:
        """Time the calls."""
        if task.is_bare:
            stamps = self._call_boundaries(repeat_call(task.step, calls_per_duration), durations)
        else:
            stamps = self._boundaries_without_setup(task, durations)
        durations_s = np.diff(np.array(stamps)) * (1e-9 / calls_per_duration)
        return Block(
            durations_s=array("d", durations_s.tobytes()),
            length_s=(stamps[-1] - stamps[0]) * 1e-9,
            calls=durations * calls_per_duration,
        )

    def _boundaries_without_setup(self, task: Task, durations: int) -> list[int]:
        """Cumulative call times, excluding setup and teardown."""
        step, setup, teardown, now = task.step, task.run_setup, task.run_teardown, self.now
        stamps, result = [0] * (durations + 1), self.take_result()
        for index in range(1, durations + 1):
            setup()
            start = now()
            result = None
            result = step()
            end = now()
            teardown()
            stamps[index] = stamps[index - 1] + end - start
        self.result = result
        return stamps


class SynchronisedClock(Clock):
    """Times groups of calls, waiting for the device after each group.

    For devices whose events cannot be trusted: MPS, where waiting for single events can hang, and
    XPU. Since a wait costs much more than a reading of the clock, calls are grouped; with a setup
    or teardown every call is waited for.
    """

    # Long beside a wait for the device.
    group_threshold_s = 0.05
    group_s: ClassVar[float] = 0.05

    def __init__(
        self, synchronize: Callable[[], object], *, timer: str, now: HostClock = perf_counter_ns
    ) -> None:
        super().__init__(now)
        self.timer = timer
        self._synchronize = synchronize

    def synchronize(self) -> None:
        """Wait for the device."""
        self._synchronize()

    def block(self, task: Task, *, durations: int, calls_per_duration: int = 1) -> Block:
        """Time the groups, synchronizing after each."""
        if task.is_bare:
            self._synchronize()
            stamps = self._call_boundaries(self._waiting(task.step, calls_per_duration), durations)
            lengths = [(end - start) * 1e-9 for start, end in pairwise(stamps)]
        else:
            lengths = [self.time_single_call(task) for _ in range(durations)]
        return Block.of(lengths, calls_per_duration)

    def _waiting(self, step: Step, times: int) -> Step:
        """Run `step` that often, then wait for the device."""
        run, wait = repeat_call(step, times), self._synchronize

        def group() -> object:
            result = run()
            wait()
            return result

        return group
