"""Clock for CUDA steps: events at call boundaries, one synchronization per block."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from statistics import median
from time import perf_counter_ns
from typing import ClassVar

from gpubench_plugin.core.quality_flags import LAUNCH_BOUND
from gpubench_plugin.measure.clocks.base import Block, Clock, HostClock, Step, Task, repeat_call
from gpubench_plugin.measure.clocks.cuda_device import Event, TorchCuda
from gpubench_plugin.measure.clocks.step_cost import (
    COST_CALLS,
    BlockTimes,
    Spin,
    StepCost,
    counts,
    elsewhere_evidence,
    elsewhere_flags,
    outlasting_s,
    step_cost,
)

# Launch time over step time from which the device waits for the host: 5% for their jitter.
_LAUNCH_BOUND_SHARE = 0.95

# Device work over step time below which launches are not what the host is busy with: it reads,
# writes, copies or sleeps.
_BUSY_SHARE = 0.02


# A thread of Python that computes delays the return from waiting by a switch interval, 5 ms
# (sys.getswitchinterval): two of them.
_LATE_RETURN_S = 0.01


class CudaStepClock(Clock):
    """Times steps that run back to back, as training steps do, with a pool of events.

    After the warm-up each block begins with a spin, after which the device is as far behind the
    host as in an endless loop.

    Events time the current stream. Where other streams fall behind it (until the end of a block by
    over 5% of it, and over 50 µs, more than after a single call), the block lasts until all are
    done, each of its durations is the mean, and ``elsewhere`` is flagged: which call caused how
    much of it is unknown. Calls with a setup or teardown are then waited for one by one.

    Streams that fall behind and that torch makes current wait for the spin at a block's start as
    well, so that the launch of the step's own work, which may be late, hides none of theirs.

    Other streams for which the next call waits, such as a copy of its input, are idle when a block
    begins, too: where they are the slowest part, the first duration has the time added by which it
    is shorter than the next ones, which is what they work on after the block.

    ``launch_bound`` compares the launches of each block, as far as no full queue delays them, with
    its median step. A step that waits for the device always takes as long to launch as to run, and
    one without work on the device has nothing to launch: neither is flagged, nor is any step that
    was not calibrated.
    """

    timer = "cuda_events"
    # A timed event is assumed to cost the device 1 to 2 µs between two kernels: 0.2% of this.
    # Their resolution is about half a microsecond: CUDA runtime API, cudaEventElapsedTime.
    group_threshold_s = 1e-3
    group_s: ClassVar[float] = 1e-3
    # Long beside the two synchronizations of a block; four calls have a median.
    block_s: ClassVar[float] = 0.05
    block_calls: ClassVar[int] = 4
    # The first call of a block begins on an idle device, and only others show what it lacks.
    fewest_calls: ClassVar[int] = 2
    # As many as a block of the shortest launches, of some microseconds, holds.
    queued_calls: ClassVar[int] = 10_000
    calibration_calls: ClassVar[int] = COST_CALLS

    def __init__(self, device: TorchCuda, now: HostClock = perf_counter_ns) -> None:
        super().__init__(now)
        self._device = device
        self._spin = Spin(device)
        self._events: list[Event] = []
        self._is_warm = False
        self._cost: StepCost | None = None
        self._last: BlockTimes | None = None
        self._outlasting_s = 0.0
        self._behind_per_call_s = math.inf

    def synchronize(self) -> None:
        """Wait for the device."""
        self._device.synchronize()

    def block(self, task: Task, *, durations: int, calls_per_duration: int = 1) -> Block:
        """Launch all calls, then synchronize once."""
        with self._device.current():
            if task.is_bare:
                run = repeat_call(task.step, calls_per_duration)
                lengths, launches, others_s = self._boundaries(run, durations)
            else:
                lengths, launches, others_s = self._separate_boundaries(task, durations)
        calls, timed_s = durations * calls_per_duration, sum(lengths)
        behind_s = self._behind_s(task, others_s, calls)
        if works_elsewhere := self._works_elsewhere or counts(behind_s, timed_s):
            # Until all streams are done that are no part of an endless loop, if known.
            lag_s = self._cost.start_up_s if self._cost and self._cost.elsewhere else 0.0
            added_s = others_s - lag_s if task.is_bare else behind_s
            lengths = [(timed_s + added_s) / durations] * durations
        elif task.is_bare:
            lengths[0] += self._head_start_s(lengths)
        is_first_shown = self._last is None or self._last.calls == 1  # it begins without a spin
        is_learning = not self._is_warm or (self._cost is None and is_first_shown)
        if is_learning and (calls > 1 or self._last is None):
            self._last = BlockTimes(
                all_s=sum(lengths),
                first_s=lengths[0] / calls_per_duration,
                later_s=median(lengths[1:] or lengths) / calls_per_duration,
                calls=calls,
                elsewhere=works_elsewhere,
            )
        evidence = {
            "enqueue_s": self._enqueue_s(task, launches, lengths, calls_per_duration),
            "device_s": median(lengths),
            "busy_s": self._cost.device_s * calls_per_duration if self._cost else 0.0,
            **elsewhere_evidence(behind_s, timed_s),
        }
        return Block.of(lengths, calls_per_duration, evidence)

    def calibrate(self, task: Task, *, may_call: bool = True) -> None:
        """Learn with some calls what the step costs host and device."""
        self._is_warm = True
        if not may_call:
            return
        with self._device.current():
            last = self._last if task.is_bare else None
            self._cost = step_cost(
                task, device=self._device, spin=self._spin, now=self.now, last=last
            )
        self._outlasting_s = self._cost.outlasting_s

    def flags(self, evidence: Mapping[str, float]) -> tuple[str, ...]:
        """``launch_bound``: the device waits for the host's launches; ``elsewhere``."""
        is_starved = evidence["enqueue_s"] >= _LAUNCH_BOUND_SHARE * evidence["device_s"]
        has_work = evidence["busy_s"] >= _BUSY_SHARE * evidence["device_s"]
        is_known = self._cost is not None and not self._cost.waits
        launch_bound = (LAUNCH_BOUND,) if is_starved and has_work and is_known else ()
        return (*launch_bound, *elsewhere_flags(evidence))

    @property
    def _works_elsewhere(self) -> bool:
        """Whether other streams are known to fall behind."""
        return self._cost is not None and self._cost.elsewhere

    def _behind_s(self, task: Task, others_s: float, calls: int) -> float:
        """Seconds by which other streams, which outlast a block of `calls`, fell behind in it.

        What they work on after a single call is left out: it overlaps the next one, as a copy to
        the host may. Of a single call it is unknown whether it is more than that. With a setup or
        teardown it is, but no more of it is the step's own: the rest they have caused. Nor does
        what a single block shows count, but not the one before, up to :data:`_LATE_RETURN_S`.
        """
        if self._works_elsewhere:
            return others_s
        if not task.is_bare:
            return min(others_s, calls * self._outlasting_s) if self._cost else others_s
        if not self._is_warm and calls == 1:
            self._outlasting_s = others_s
            return others_s
        behind_s = max(0.0, others_s - self._outlasting_s)
        before_s, self._behind_per_call_s = self._behind_per_call_s, behind_s / calls
        return behind_s if behind_s > _LATE_RETURN_S else min(behind_s, before_s * calls)

    def _head_start_s(self, lengths: list[float]) -> float:
        """Seconds by which the first call of a block is shorter than the next ones.

        Those wait for other streams, which work on after the last one: no more than after a single
        call, and not so little that it may be the cost of waiting. Nor is it more than what the
        first of the block's `lengths` lacks to the others.
        """
        if not self._is_warm:
            return 0.0
        shorter_s = 0.0
        if self._cost is not None:
            shorter_s = self._cost.steady_s - self._cost.alone_s
        elif self._last is not None:
            shorter_s = self._last.later_s - self._last.first_s
        shorter_s = min(shorter_s, self._outlasting_s)
        if len(lengths) > 1:
            shorter_s = min(shorter_s, median(lengths[1:]) - lengths[0])
        return shorter_s if counts(shorter_s, 0.0) else 0.0

    def _enqueue_s(
        self, task: Task, launches: list[float], lengths: list[float], calls_per_duration: int
    ) -> float:
        """Seconds of the host for the launches of a duration, without waiting for a full queue.

        A device that waits for launches has room for them: the median tells. Else the queue may
        fill up behind the first ones, or even behind the spin, and if there is a setup or teardown,
        its work hides the launches.
        """
        cost = self._cost
        if cost is None:
            return min(launches[:2])
        if cost.device_s * calls_per_duration < _LAUNCH_BOUND_SHARE * median(lengths):
            return median(launches)
        if not task.is_bare:
            return 0.0
        first_s = launches[:2]
        if cost.is_device_bound:
            first_s.append(cost.launch_s * calls_per_duration)
        return min(first_s)

    def _start_up_s(self, *, is_bare: bool) -> float:
        """Seconds of the spin before a block, by which its first call would take longer.

        Without a calibration, or with work between the calls, which may leave the device idle at
        every start, it is what the warm-up has shown.
        """
        if not self._is_warm:
            return 0.0
        if self._cost is not None and self._cost.elsewhere:
            return self._cost.launch_s if self._cost.held and is_bare else 0.0
        if self._cost is not None and is_bare:
            return self._cost.start_up_s
        if self._last is not None:
            return max(0.0, self._last.first_s - self._last.later_s)
        return self._cost.start_up_s if self._cost and self._cost.is_device_bound else 0.0

    def _boundaries(self, run: Step, durations: int) -> tuple[list[float], list[float], float]:
        """Device seconds and launch seconds per duration, with shared boundary events.

        The third are the seconds for which other streams outlast the last event.
        """
        events = self._first_events(durations + 1)
        stamps = [0] * (durations + 1)
        now, result = self.now, self.take_result()
        self._device.synchronize()
        self._spin(self._start_up_s(is_bare=True))
        if self._cost is not None and self._cost.held:
            self._device.hold(self._cost.held)
        events[0].record()
        stamps[0] = now()
        for index in range(1, durations + 1):
            result = None
            result = run()
            events[index].record()
            stamps[index] = now()
        self.result = result
        self.on_launched()
        elsewhere_s = outlasting_s(self._device, events[-1], now)
        return (
            [start.elapsed_time(end) * 1e-3 for start, end in pairwise(events)],
            [(end - start) * 1e-9 for start, end in pairwise(stamps)],
            elsewhere_s,
        )

    def _separate_boundaries(
        self, task: Task, durations: int
    ) -> tuple[list[float], list[float], float]:
        """The same with separate events per call, excluding setup and teardown."""
        *events, last = self._first_events(2 * durations + 1)
        launches = [0] * durations
        waits_for_others = self._works_elsewhere
        elsewhere_s = 0.0
        now, result = self.now, self.take_result()
        self._device.synchronize()
        for index in range(durations):
            task.run_setup()
            if waits_for_others:  # they would begin before the start event
                self._device.synchronize()
            if index == 0:
                self._spin(self._start_up_s(is_bare=False))
            events[2 * index].record()
            start = now()
            result = None
            result = task.step()
            events[2 * index + 1].record()
            launches[index] = now() - start
            if waits_for_others:
                elsewhere_s += outlasting_s(self._device, events[2 * index + 1], now)
            task.run_teardown()
        self.result = result
        last.record()
        self.on_launched()
        elsewhere_s += outlasting_s(self._device, last, now)
        pairs = zip(events[::2], events[1::2], strict=True)
        return (
            [start.elapsed_time(end) * 1e-3 for start, end in pairs],
            [time * 1e-9 for time in launches],
            elsewhere_s,
        )

    def _first_events(self, count: int) -> list[Event]:
        """The first `count` events of a growing pool."""
        self._events += [self._device.event() for _ in range(count - len(self._events))]
        return self._events[:count]
