"""Clock base class: timed blocks, and the evidence for flags."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from time import perf_counter_ns
from typing import ClassVar, Self

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

    `durations_s` are seconds per call, each the mean of the calls timed together. `length_s` is the
    time from the first to the last boundary, or the sum of the timed calls with a setup or teardown
    between them. `evidence` adds up over the blocks; :meth:`Clock.flags` judges the sums.
    """

    durations_s: array[float]
    length_s: float
    calls: int
    evidence: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, lengths: Sequence[float], calls: int, evidence: Mapping[str, float] = {}) -> Self:
        """Block of durations of these `lengths` in seconds, of so many `calls` each."""
        durations_s = array("d", (length / calls for length in lengths))
        length_s, all_calls = sum(lengths), len(lengths) * calls
        return cls(durations_s=durations_s, length_s=length_s, calls=all_calls, evidence=evidence)


class Clock(ABC):
    """Timing method; subclasses define how a block is timed and at which resolution.

    `now` is the host's clock in nanoseconds, also that of the loop's time limits.
    """

    timer: str
    """Name of the clock in the record."""
    accelerator: ClassVar[bool] = True
    """Whether the device needs the long warm-up."""
    group_threshold_s: float = 0.0
    """Shorter calls are timed in groups…"""
    group_s: ClassVar[float] = 0.0
    """…of about this length…"""
    group_calls: ClassVar[int] = 1_000_000
    """…and at most so many calls."""
    block_s: ClassVar[float] = 0.0
    """Shortest block worth the cost of its start and end."""
    block_calls: ClassVar[int] = 1
    """Minimum of calls per block, if time allows."""
    fewest_calls: ClassVar[int] = 1
    """Minimum of calls per block, however long they take."""
    queued_calls: ClassVar[int] = 1_000_000
    """Maximum of calls per block."""
    calibration_calls: ClassVar[int] = 0
    """Untimed calls that :meth:`calibrate` makes, whatever the step does: ranks stay in step."""

    def __init__(self, now: HostClock = perf_counter_ns) -> None:
        self.now = now
        self.result: object = None
        """Result of the last call, released inside the timed part right before the next one: no two
        results take memory at once, and each duration has the release of one in it, as if results
        were discarded."""
        self.on_launched: Callable[[], object] = lambda: None
        """Called once per block by the CUDA clocks when the host has launched everything and the
        device is still at work, to read its state under load. It is in no duration; should take
        less than 0.1 ms, during which the end of work on other streams goes unnoticed."""

    @abstractmethod
    def block(self, task: Task, *, durations: int, calls_per_duration: int = 1) -> Block:
        """Time `durations` × `calls_per_duration` calls; only bare tasks may be grouped."""

    def prepare(self) -> int:
        """Allocate the device memory that the blocks need beside the step's; return its bytes.

        Called before the memory of a benchmark is watched, whose peaks should not include it.
        """
        return 0

    def time_single_call(self, task: Task) -> float:
        """Host time of a call, including its device work."""
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

    def calibrate(self, task: Task, *, may_call: bool = True) -> None:
        """Calibrate after the warm-up.

        Without calls, which may cost too much, the warm-up has to do, and the clock raises no flag
        that needs them.
        """
        return

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

    def _call_boundaries(self, step: Step, durations: int) -> list[int]:
        """Readings of the host's clock before the first call and after every call."""
        now, result = self.now, self.take_result()
        stamps = [0] * (durations + 1)
        stamps[0] = now()
        for index in range(1, durations + 1):
            result = None
            result = step()
            stamps[index] = now()
        self.result = result
        return stamps


def repeat_call(step: Step, times: int) -> Step:
    """Step, or a callable that runs it `times` times and returns the last result."""
    if times == 1:
        return step

    def group() -> object:
        for _ in repeat(None, times - 1):
            step()
        return step()

    return group
