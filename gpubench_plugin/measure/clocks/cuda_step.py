"""Clock for CUDA steps: events at call boundaries, one synchronization per block."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from itertools import pairwise
from statistics import median
from time import perf_counter_ns
from typing import ClassVar

from gpubench_plugin.flags import LAUNCH_BOUND
from gpubench_plugin.measure.clocks.base import Block, Clock, HostClock, Step, Task, repeat_call
from gpubench_plugin.measure.clocks.cuda_device import Event, TorchCuda
from gpubench_plugin.measure.clocks.cuda_kernel import Spin

# The device waits for the host where handing a step over takes this share of running it.
_LAUNCH_BOUND_SHARE = 0.95

# A launch costs the host some microseconds, and about a thousand fit into the queue: a step
# handed over within this time cannot have filled it, so a wait seen behind a spin is its own.
_QUEUE_FILLS_S = 4e-3


class CudaStepClock(Clock):
    """Times steps that run back to back, as training steps do.

    Events are made once and used again. The host's time after each hand-over tells whether the
    device starves: ``launch_bound`` compares the quicker of each block's first two hand-overs,
    made into an empty queue and so not held up by a full one, with the median step of that block.
    A step that waits for the device by itself always takes as long to hand over as to run; it is
    found out by :meth:`calibrate` and never flagged.
    """

    timer = "cuda_events"
    # Events resolve about half a microsecond: CUDA runtime API, cudaEventElapsedTime.
    group_threshold_s = 2e-5
    group_s: ClassVar[float] = 5e-5
    block_s: ClassVar[float] = 0.05
    block_calls: ClassVar[int] = 4
    queued_calls: ClassVar[int] = 1000

    def __init__(self, device: TorchCuda, now: HostClock = perf_counter_ns) -> None:
        super().__init__(now)
        self._device = device
        self._spin = Spin(device)
        self._events: list[Event] = []
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
                lengths, enqueued = self._boundaries(run, durations)
            else:
                lengths, enqueued = self._separate_boundaries(task, durations)
        return Block(
            durations_s=array("d", (length / calls_per_duration for length in lengths)),
            length_s=sum(lengths),
            calls=calls,
            evidence={"enqueue_s": min(enqueued[:2]), "device_s": median(lengths)},
        )

    def calibrate(self, task: Task) -> int:
        """Detect with three calls whether the step synchronizes with the device.

        torch reports the waits inside its operations. Any other shows when the device first
        spins longer than the hand-over took before: a host that comes back only after the spin
        has waited, unless the step is so large that it filled the queue.
        """
        with self._device.current():
            task.run_setup()
            synchronizes = self._device.synchronizes(task.step)
            task.run_teardown()
            alone_s, _ = self._time_launch(task, spin_s=0.0)
            _, spin_ended_first = self._time_launch(
                task, spin_s=3 * min(alone_s, _QUEUE_FILLS_S) + 1e-4
            )
            self._device.synchronize()
        self._waits = synchronizes or (spin_ended_first and alone_s < _QUEUE_FILLS_S)
        self._lead_s = 0.0 if self._waits else min(alone_s, _QUEUE_FILLS_S)
        return 3

    def flags(self, evidence: Mapping[str, float]) -> tuple[str, ...]:
        """``launch_bound``: the device waits for the host."""
        starved = evidence["enqueue_s"] >= _LAUNCH_BOUND_SHARE * evidence["device_s"]
        return (LAUNCH_BOUND,) if starved and not self._waits else ()

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
        self._device.synchronize()
        return (
            [start.elapsed_time(end) * 1e-3 for start, end in pairwise(events)],
            [(end - start) * 1e-9 for start, end in pairwise(stamps)],
        )

    def _separate_boundaries(self, task: Task, durations: int) -> tuple[list[float], list[float]]:
        """The same with separate events per call, excluding setup and teardown."""
        events = self._first_events(2 * durations)
        enqueued = [0] * durations
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
            enqueued[index] = now() - start
            task.run_teardown()
        self.result = result
        self._device.synchronize()
        pairs = zip(events[::2], events[1::2], strict=True)
        return (
            [start.elapsed_time(end) * 1e-3 for start, end in pairs],
            [time * 1e-9 for time in enqueued],
        )

    def _queue_spin(self) -> None:
        """Keep the idle device busy while the first step is launched.

        Else its event passes at once, and the first duration has the host's part in it too.
        """
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
        enqueued = (self.now() - start) * 1e-9
        spin_ended = mark.query()
        task.run_teardown()
        return enqueued, spin_ended

    def _first_events(self, count: int) -> list[Event]:
        """The first `count` events of a growing pool."""
        self._events += [self._device.event() for _ in range(count - len(self._events))]
        return self._events[:count]
