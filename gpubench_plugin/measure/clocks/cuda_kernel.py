"""Clock for single CUDA kernels: launches queue behind a spin kernel, cache hot or cold."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from time import perf_counter_ns
from typing import ClassVar, Literal

from gpubench_plugin.measure.clocks.base import Block, Clock, HostClock, Step, Task, repeat_call
from gpubench_plugin.measure.clocks.cuda_device import Event, TorchCuda
from gpubench_plugin.quality_flags import LAUNCH_BOUND

# About half a millisecond at 2 GHz, a thousand times the events' resolution.
_CALIBRATION_CYCLES = 1_000_000


class Spin:
    """Spin kernel of a length in seconds, calibrated once with device events.

    Launches of the host queue behind it.
    """

    def __init__(self, device: TorchCuda) -> None:
        self._device = device
        self._cycles_per_s: float | None = None

    def __call__(self, seconds: float) -> None:
        """Queue a spin of about that length."""
        if self._cycles_per_s is None:
            self._cycles_per_s = self._calibrate()
        self._device.spin(round(seconds * self._cycles_per_s))

    def _calibrate(self) -> float:
        start, end = self._device.event(), self._device.event()
        self._device.spin(_CALIBRATION_CYCLES)  # loads the kernel
        start.record()
        self._device.spin(_CALIBRATION_CYCLES)
        end.record()
        self._device.synchronize()
        return _CALIBRATION_CYCLES / (start.elapsed_time(end) * 1e-3)


# Launches behind one spin: far below the thousand that fit into the queue. Not measured.
_BURST = 32
# Host time of a launch before the first is timed: well above the microseconds that one costs.
_FIRST_LAUNCH_S = 5e-5
# Length of a spin over the expected launch time, and its limit, which wastes device time.
_SPIN_MARGIN = 2.0
_LONGEST_SPIN_S = 0.05
# Share of late durations that is flagged: a few outliers of the host do no harm. Not measured.
_LATE_SHARE = 0.05


class CudaKernelClock(Clock):
    """Times a kernel without launch overhead: up to 32 launches queue behind a spin.

    *Hot*: launches follow each other and find their data in the L2 cache. *Cold*: the cache is
    overwritten before each, outside its events. Kernels too short for the events' resolution are
    timed in groups, but only hot.
    """

    group_s: ClassVar[float] = 5e-5
    group_calls: ClassVar[int] = _BURST
    # Long beside the start of a block, and bounded between two decisions. Not measured.
    block_s: ClassVar[float] = 0.05
    queued_calls: ClassVar[int] = 10_000

    def __init__(
        self,
        device: TorchCuda,
        *,
        cache: Literal["hot", "cold"] = "hot",
        now: HostClock = perf_counter_ns,
    ) -> None:
        super().__init__(now)
        self.timer = f"cuda_kernel_{cache}"
        # As of CUDA steps; a group would find its data in the cache after the first call.
        self.group_threshold_s = 2e-5 if cache == "hot" else 0.0
        self._device = device
        self._cold = cache == "cold"
        self._spin = Spin(device)
        self._launch_s = _FIRST_LAUNCH_S
        self._starts: list[Event] = []
        self._ends: list[Event] = []

    def synchronize(self) -> None:
        """Wait for the device."""
        self._device.synchronize()

    def block(self, task: Task, *, durations: int, calls_per_duration: int = 1) -> Block:
        """Time bursts of at most 32 calls until there are enough durations."""
        max_count = max(1, _BURST // calls_per_duration)
        run = repeat_call(task.step, calls_per_duration)
        lengths: list[float] = []
        late_count = 0
        with self._device.current():
            if not self._starts:
                self._starts = [self._device.event() for _ in range(_BURST)]
                self._ends = [self._device.event() for _ in range(_BURST)]
            while len(lengths) < durations:
                count = min(max_count, durations - len(lengths))
                is_last = len(lengths) + count == durations
                late_count += count * self._run_burst(
                    task, run, count, count * calls_per_duration, is_last=is_last
                )
                event_pairs = zip(self._starts[:count], self._ends[:count], strict=True)
                lengths += [start.elapsed_time(end) * 1e-3 for start, end in event_pairs]
        return Block(
            durations_s=array("d", (length / calls_per_duration for length in lengths)),
            length_s=sum(lengths),
            calls=durations * calls_per_duration,
            evidence={"durations": durations, "late": late_count},
        )

    def flags(self, evidence: Mapping[str, float]) -> tuple[str, ...]:
        """``launch_bound``: more than one in twenty durations started after its spin ended.

        Durations then include the host's launching, or the step synchronizes with the device.
        """
        is_late = evidence["late"] > _LATE_SHARE * evidence["durations"]
        return (LAUNCH_BOUND,) if is_late else ()

    def _run_burst(self, task: Task, run: Step, count: int, calls: int, *, is_last: bool) -> bool:
        """Run `count` durations behind a spin; return whether the spin ended too early."""
        self._device.synchronize()
        self._spin(min(_SPIN_MARGIN * calls * self._launch_s, _LONGEST_SPIN_S))
        result = self.take_result()
        start = self.now()
        for start_event, end_event in zip(self._starts[:count], self._ends, strict=False):
            task.run_setup()
            if self._cold:
                self._device.overwrite_cache()
            start_event.record()
            result = None
            result = run()
            end_event.record()
            task.run_teardown()
        self.result = result
        self._launch_s = (self.now() - start) * 1e-9 / calls
        is_late = self._starts[0].query()
        if is_last:
            self._announce_launched()
        self._device.synchronize()
        return is_late
