"""Clock for CUDA steps: events at call boundaries, one synchronization per block."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from itertools import pairwise
from statistics import median
from time import perf_counter_ns
from typing import ClassVar

from gpubench_plugin.measure.clocks.base import Block, Clock, HostClock, Step, Task, repeat_call
from gpubench_plugin.measure.clocks.cuda_device import Event, TorchCuda
from gpubench_plugin.measure.clocks.cuda_kernel import Spin
from gpubench_plugin.quality_flags import LAUNCH_BOUND

# Launch time over step time from which the device waits for the host: 5 % for their jitter. Not
# measured.
_LAUNCH_BOUND_SHARE = 0.95

# A launch costs the host some microseconds, and about a thousand fit into the queue: a step
# launched within this time cannot have filled it, so that a wait behind a spin is its own.
_QUEUE_FILLS_S = 4e-3


class CudaStepClock(Clock):
    """Times steps that run back to back, as training steps do, with a pool of events.

    ``launch_bound`` compares the faster of each block's first two launches, which no full queue
    delays, with the median step of the block. A step that synchronizes with the device always
    takes as long to launch as to run; :meth:`calibrate` detects it, and it is never flagged.
    """

    timer = "cuda_events"
    # Events resolve about half a microsecond: CUDA runtime API, cudaEventElapsedTime.
    group_threshold_s = 2e-5
    group_s: ClassVar[float] = 5e-5
    # Long beside the two synchronizations of a block; four calls have a median. Not measured.
    block_s: ClassVar[float] = 0.05
    block_calls: ClassVar[int] = 4
    # About the launches that fit into the queue.
    queued_calls: ClassVar[int] = 1000

    def __init__(self, device: TorchCuda, now: HostClock = perf_counter_ns) -> None:
        super().__init__(now)
        self._device = device
        self._spin = Spin(device)
        self._events: list[Event] = []
        self._is_calibrated = False
        self._waits = False
        self._lead_s = 0.0

    def synchronize(self) -> None:
        """Wait for the device."""
        self._device.synchronize()

    def block(self, task: Task, *, durations: int, calls_per_duration: int = 1) -> Block:
        """Launch all calls, then synchronize once."""
        calls = durations * calls_per_duration
        with self._device.current():
            if task.is_bare:
                run = repeat_call(task.step, calls_per_duration)
                lengths, launches = self._boundaries(run, durations)
            else:
                lengths, launches = self._separate_boundaries(task, durations)
        return Block(
            durations_s=array("d", (length / calls_per_duration for length in lengths)),
            length_s=sum(lengths),
            calls=calls,
            evidence={"enqueue_s": min(launches[:2]), "device_s": median(lengths)},
        )

    def calibrate(self, task: Task) -> int:
        """Detect with three calls whether the step synchronizes with the device.

        torch reports the waits inside its operations. Others show behind a spin longer than the
        launch: a host that returns only after it has waited, unless the step filled the queue.
        """
        with self._device.current():
            task.run_setup()
            synchronizes = self._device.synchronizes(task.step)
            task.run_teardown()
            launch_s, _ = self._time_launch(task, spin_s=0.0)
            # Three times the launch, whose time varies, and no less than a spin's own overhead.
            spin_s = 3 * min(launch_s, _QUEUE_FILLS_S) + 1e-4
            _, spin_ended_first = self._time_launch(task, spin_s=spin_s)
            self._device.synchronize()
        self._is_calibrated = True
        self._waits = synchronizes or (spin_ended_first and launch_s < _QUEUE_FILLS_S)
        self._lead_s = 0.0 if self._waits else min(launch_s, _QUEUE_FILLS_S)
        return 3

    def flags(self, evidence: Mapping[str, float]) -> tuple[str, ...]:
        """``launch_bound``: the device waits for the host; unknown without a calibration."""
        is_starved = evidence["enqueue_s"] >= _LAUNCH_BOUND_SHARE * evidence["device_s"]
        is_known = self._is_calibrated and not self._waits
        return (LAUNCH_BOUND,) if is_starved and is_known else ()

    def _boundaries(self, run: Step, durations: int) -> tuple[list[float], list[float]]:
        """Device seconds and launch seconds per duration, with shared boundary events."""
        events = self._first_events(durations + 1)
        stamps = [0] * (durations + 1)
        now, result = self.now, self.take_result()
        self._device.synchronize()
        self._queue_spin()
        events[0].record()
        stamps[0] = now()
        for index in range(1, durations + 1):
            result = None
            result = run()
            events[index].record()
            stamps[index] = now()
        self.result = result
        self._announce_launched()
        self._device.synchronize()
        return (
            [start.elapsed_time(end) * 1e-3 for start, end in pairwise(events)],
            [(end - start) * 1e-9 for start, end in pairwise(stamps)],
        )

    def _separate_boundaries(self, task: Task, durations: int) -> tuple[list[float], list[float]]:
        """The same with separate events per call, excluding setup and teardown."""
        events = self._first_events(2 * durations)
        launches = [0] * durations
        now, result = self.now, self.take_result()
        self._device.synchronize()
        for index in range(durations):
            task.run_setup()
            if index == 0:
                self._queue_spin()
            events[2 * index].record()
            start = now()
            result = None
            result = task.step()
            events[2 * index + 1].record()
            launches[index] = now() - start
            task.run_teardown()
        self.result = result
        self._announce_launched()
        self._device.synchronize()
        pairs = zip(events[::2], events[1::2], strict=True)
        return (
            [start.elapsed_time(end) * 1e-3 for start, end in pairs],
            [time * 1e-9 for time in launches],
        )

    def _queue_spin(self) -> None:
        """Keep the idle device busy while the first step is launched: else it would time that."""
        if self._lead_s:
            self._spin(self._lead_s)

    def _time_launch(self, task: Task, *, spin_s: float) -> tuple[float, bool]:
        """Launch seconds of one call behind a spin, and whether the spin ended first."""
        mark = self._first_events(1)[0]
        task.run_setup()
        self._device.synchronize()
        if spin_s:
            self._spin(spin_s)
        mark.record()
        start = self.now()
        task.step()
        launch_s = (self.now() - start) * 1e-9
        spin_ended = mark.query()
        task.run_teardown()
        return launch_s, spin_ended

    def _first_events(self, count: int) -> list[Event]:
        """The first `count` events of a growing pool."""
        self._events += [self._device.event() for _ in range(count - len(self._events))]
        return self._events[:count]
