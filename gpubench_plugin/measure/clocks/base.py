"""Clock base class: timed blocks, and the evidence for flags."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from time import perf_counter_ns
from typing import ClassVar

Step = Callable[[], object]
HostClock = Callable[[], int]


@dataclass(frozen=True, kw_only=True)
class Task:
    """The step to time, with its untimed setup and teardown."""

    step: Step
    setup: Step | None = None
    teardown: Step | None = None

    @property
    def is_bare(self) -> bool:
        """Whether calls can run back to back, without setup or teardown."""
        return self.setup is None and self.teardown is None

    def run_setup(self) -> None:
        """Run the setup, if there is one."""
        if self.setup is not None:
            self.setup()

    def run_teardown(self) -> None:
        """Run the teardown, if there is one."""
        if self.teardown is not None:
            self.teardown()


@dataclass(frozen=True, kw_only=True)
class Block:
    """Times and evidence of one block.

    `durations_s` are seconds per call, each the mean of as many calls as were timed together.
    `length_s` is the block's own length: from its first to its last boundary, or the sum of the
    timed calls where a setup or teardown runs between them. `evidence` adds up over
    the blocks of a measurement; :meth:`Clock.flags` judges the sums.
    """

    durations_s: array[float]
    length_s: float
    calls: int
    evidence: Mapping[str, float] = field(default_factory=dict)


class Clock(ABC):
    """A timing method; subclasses define how a block is timed and at which resolution.

    `now` is the host's clock in nanoseconds; the loop keeps its time limits by it too.
    """

    timer: str
    """The name under which samples are recorded."""
    accelerator: ClassVar[bool] = True
    """Whether the device needs the long warm-up."""
    group_threshold_s: float = 0.0
    """Calls shorter than this are timed several at a time…"""
    group_s: ClassVar[float] = 0.0
    """…so many that a group lasts about this long…"""
    group_calls: ClassVar[int] = 1_000_000
    """…but never more than this."""
    block_s: ClassVar[float] = 0.0
    """The shortest block worth the cost of beginning and ending one."""
    block_calls: ClassVar[int] = 1
    """The fewest calls in a block, where time allows."""
    queued_calls: ClassVar[int] = 1_000_000
    """The most calls in a block."""

    def __init__(self, now: HostClock = perf_counter_ns) -> None:
        self.now = now
        self.result: object = None
        """What the last call returned. It is dropped inside the timed part of the next call, right
        before it: so every duration has a call and the end of one result in it, as where results
        are thrown away, and no two of them take memory at once."""

    @abstractmethod
    def block(self, task: Task, *, durations: int, calls_per_duration: int = 1) -> Block:
        """Time `durations` × `calls_per_duration` calls; only bare tasks may be grouped."""

    def time_first_call(self, task: Task) -> float:
        """Host time of the first call, including its device work."""
        task.run_setup()
        self.synchronize()
        start = self.now()
        self.result = None
        self.result = task.step()
        self.synchronize()
        seconds = (self.now() - start) * 1e-9
        task.run_teardown()
        return seconds

    def take_result(self) -> object:
        """Take the result of the last call, releasing the clock's reference."""
        result, self.result = self.result, None
        return result

    def calibrate(self, task: Task) -> int:
        """Calibrate with untimed calls; return their number, equal on every rank."""
        return 0

    def synchronize(self) -> None:
        """Wait for the device; nothing to do on a CPU."""
        return

    def flags(self, evidence: Mapping[str, float]) -> tuple[str, ...]:
        """Flags supported by the summed evidence of all timed blocks."""
        return ()

    def group_size(self, per_call_s: float) -> int:
        """Number of calls of this length that are timed together."""
        if per_call_s >= self.group_threshold_s:
            return 1
        return min(self.group_calls, math.ceil(self.group_s / per_call_s))


def repeat_call(step: Step, times: int) -> Step:
    """The step, or a callable that runs it `times` times and returns the last result."""
    if times == 1:
        return step

    def group() -> object:
        for _ in repeat(None, times - 1):
            step()
        return step()

    return group
