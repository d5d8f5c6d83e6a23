"""What every clock offers: blocks of timed calls, and the evidence its flags rest on."""

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
    """The step to be timed, and what runs untimed around every single call of it."""

    step: Step
    setup: Step | None = None
    teardown: Step | None = None

    @property
    def bare(self) -> bool:
        """Whether calls may follow each other with nothing between them."""
        return self.setup is None and self.teardown is None

    def before(self) -> None:
        """Run the setup, if there is one."""
        if self.setup is not None:
            self.setup()

    def after(self) -> None:
        """Run the teardown, if there is one."""
        if self.teardown is not None:
            self.teardown()


@dataclass(frozen=True, kw_only=True)
class Block:
    """What a clock saw of one block.

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
    """A way of taking time. A subclass says how a block is timed and how fine its grain is.

    `now` is the host's clock in nanoseconds; the loop keeps its time limits by it too.
    """

    timer: str
    """The name under which samples are recorded."""
    accelerator: ClassVar[bool] = True
    """Whether the device needs the long warm-up."""
    group_below_s: float = 0.0
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
        """Time `durations` × `calls_per_duration` calls; only a bare task may be grouped."""

    def first(self, task: Task) -> float:
        """The first call's seconds on the host's clock, until the device has finished it."""
        task.before()
        self.synchronize()
        start = self.now()
        self.result = None
        self.result = task.step()
        self.synchronize()
        seconds = (self.now() - start) * 1e-9
        task.after()
        return seconds

    def taken(self) -> object:
        """The result of the call before, which the clock lets go of: whoever asks must, too."""
        result, self.result = self.result, None
        return result

    def calibrate(self, task: Task) -> int:
        """Learn about the warm step by untimed calls; their number, equal on every rank."""
        return 0

    def synchronize(self) -> None:
        """Wait until the device has done all it was given; nothing to do on a CPU."""
        return

    def flags(self, evidence: Mapping[str, float]) -> tuple[str, ...]:
        """The flags that the summed evidence of all timed blocks deserves."""
        return ()

    def grouped(self, per_call_s: float) -> int:
        """How many calls of this length are timed together."""
        if per_call_s >= self.group_below_s:
            return 1
        return min(self.group_calls, math.ceil(self.group_s / per_call_s))


def repeated(step: Step, times: int) -> Step:
    """The step itself, or a callable that runs it `times` over and returns the last result."""
    if times == 1:
        return step

    def group() -> object:
        for _ in repeat(None, times - 1):
            step()
        return step()

    return group
