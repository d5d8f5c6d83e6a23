"""Clock for single CUDA kernels: launches queue behind a spin kernel, cache hot or cold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING, ClassVar, Literal

from gpubench_plugin.core.quality_flags import LAUNCH_BOUND, TIMER_OVERHEAD
from gpubench_plugin.measure.clocks.base import Block, Clock, HostClock, Step, Task, repeat_call
from gpubench_plugin.measure.clocks.cuda_device import Event, TorchCuda
from gpubench_plugin.measure.clocks.step_cost import (
    Spin,
    TimedCalls,
    counts,
    elsewhere_evidence,
    elsewhere_flags,
    falls_behind,
    outlasting_s,
)

if TYPE_CHECKING:
    import torch

# Calls behind one spin: with two events and a write over the cache for each, about half of the
# thousand entries that fit into the queue.
_BURST = 128
# Host time of a launch before the first is timed: well above the microseconds that one costs.
_FIRST_LAUNCH_S = 5e-5
# Length of a spin over the expected launch time, and its limit, which wastes device time.
_SPIN_MARGIN = 2.0
_LONGEST_SPIN_S = 0.05
# Resolution of events: CUDA runtime API, cudaEventElapsedTime.
_RESOLUTION_S = 5e-7
# Share of late durations that is flagged: a few outliers of the host do no harm.
_LATE_SHARE = 0.05
# Length of a call alone between its events, as with a cold cache, below which their own time is
# flagged: an assumed 1 to 2 µs for each are 0.2 to 0.4% of it.
_EVENTS_SHOW_BELOW_S = 5e-4


class CudaKernelClock(Clock):
    """Times a kernel without launch overhead: a burst of launches queues behind a spin.

    *Hot*: launches follow each other and find their data in the L2 cache, and are timed in groups
    of about a millisecond, which hide the events' own time. *Cold*: the cache is overwritten before
    each call, outside its events, so that every call is alone between two of them, and has the time
    of one in its own.

    A burst of steps with many kernels could fill the queue, which would hold the host up until the
    spin ends: where launches were late although the spin was long enough for them, the next bursts
    are shorter.

    Other streams that fall behind the current one are dealt with as by :class:`CudaStepClock`. They
    wait for the spin, too, if the step makes them current by torch. Where others do not, and where
    the current one has no work at all, each duration is timed from an idle device until all streams
    are done, without a spin, and has the launches in it.
    """

    group_s: ClassVar[float] = 1e-3
    # Fewer than fit into the queue: they have two events and no write over the cache.
    group_calls: ClassVar[int] = 512
    # Long beside the start of a block, and bounded between two decisions.
    block_s: ClassVar[float] = 0.05
    queued_calls: ClassVar[int] = 10_000
    calibration_calls: ClassVar[int] = 5

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
        self.group_threshold_s = 1e-3 if cache == "hot" else 0.0
        self._device = device
        self._cold = cache == "cold"
        self._spin = Spin(device)
        self._burst_calls = _BURST
        self._launch_s = _FIRST_LAUNCH_S
        self._least_launch_s = math.inf
        self._is_queued = True
        self._others: Sequence[torch.cuda.Stream] = ()
        self._outlasting_s = 0.0
        self._first_lacks_s = 0.0
        self._starts: list[Event] = []
        self._ends: list[Event] = []

    def synchronize(self) -> None:
        """Wait for the device."""
        self._device.synchronize()

    def prepare(self) -> int:
        """Allocate what overwrites the cache."""
        return self._device.allocate_scratch() if self._cold else 0

    def block(self, task: Task, *, durations: int, calls_per_duration: int = 1) -> Block:
        """Time bursts until there are enough durations."""
        run = repeat_call(task.step, calls_per_duration)
        lengths: list[float] = []
        # Per duration of each burst; a single one may be a delay of the host.
        others_s: list[float] = []
        behind_s: list[float] = []
        late_count = 0
        with self._device.current():
            if not self._starts:  # one more start, for the end of a burst
                self._starts = [self._device.event() for _ in range(_BURST + 1)]
                self._ends = [self._device.event() for _ in range(_BURST)]
            while len(lengths) < durations:
                count = min(self._burst_durations(calls_per_duration), durations - len(lengths))
                late_count += count * self._run_burst(task, run, count, calls_per_duration)
                if len(lengths) + count == durations:
                    self.on_launched()
                outlasting = outlasting_s(self._device, self._starts[-1], self.now)
                others_s.append(outlasting / count)
                behind_s.append(max(0.0, outlasting - self._outlasting_s) / count)
                event_pairs = zip(self._starts[:count], self._ends[:count], strict=True)
                first, *others = [start.elapsed_time(end) * 1e-3 for start, end in event_pairs]
                lengths += [first + self._first_lacks_s, *others]
        timed_s = sum(lengths)
        all_behind_s = median(behind_s) * durations
        if counts(all_behind_s, timed_s):
            lengths = [timed_s / durations + median(others_s)] * durations
        elsewhere = elsewhere_evidence(all_behind_s, timed_s)
        evidence = {"durations": durations, "late": late_count, **elsewhere}
        return Block.of(lengths, calls_per_duration, evidence)

    def calibrate(self, task: Task, *, may_call: bool = True) -> None:
        """Learn with some calls which streams the step uses, and whether they queue behind a spin.

        Work on other streams does not if it outlasts the current one alone, but not behind a spin
        that has given it the time to end. It is the shorter of two times, since a host that returns
        late from waiting looks the same. Two calls behind a spin tell work that falls behind from
        work that overlaps the next call.
        """
        self._spin.recalibrate()  # the warm-up has raised the clocks
        if not may_call:
            return
        with self._device.current():
            calls, times = TimedCalls(task, self._device, self._spin, self.now), []
            self._others = self._device.other_streams(lambda: times.append(calls.run()))
            alone = calls.run()
            outlasting = min(times[0].outlasting_s, alone.outlasting_s)
            is_outlasted = counts(outlasting, alone.device_s)
            spin_s = _SPIN_MARGIN * (alone.device_s + outlasting) + 2 * _FIRST_LAUNCH_S
            held = calls.run(spin_s=spin_s, held=self._others)
            has_work = held.device_s - held.event_s > _RESOLUTION_S
            stays_behind = counts(held.outlasting_s, held.device_s)
            self._is_queued = has_work and (stays_behind or not is_outlasted)
            two = calls.run(2, spin_s=2 * spin_s, held=self._others)
            overlap_s = held.outlasting_s
            if falls_behind(held, two):  # what is over after a call is not what overlaps the next
                overlap_s = max(0.0, 2 * held.all_s - two.all_s)
            self._outlasting_s = overlap_s if self._is_queued else 0.0
            # The second call waits for what other streams do after the first one, and less for what
            # they do before it, as they have begun with it during the first.
            lacking_s = min(two.device_s - 2 * held.device_s, held.outlasting_s)
            self._first_lacks_s = lacking_s if self._others and counts(abs(lacking_s), 0) else 0.0

    def flags(self, evidence: Mapping[str, float]) -> tuple[str, ...]:
        """``launch_bound``: more than one in twenty durations started after its spin ended.

        Durations then include the host's launching, or the step synchronizes with the device. Or
        they started without a spin, unless this is due to other streams: then ``elsewhere``.
        ``timer_overhead``: short calls with a cold cache.
        """
        is_late = evidence["late"] > _LATE_SHARE * evidence["durations"]
        elsewhere = elsewhere_flags(evidence)
        launch_bound = is_late or not (self._is_queued or elsewhere)
        is_short = evidence["events_s"] < _EVENTS_SHOW_BELOW_S * evidence["durations"]
        timer_overhead = self._cold and is_short and not elsewhere
        flags = {LAUNCH_BOUND: launch_bound, TIMER_OVERHEAD: timer_overhead}
        return (*(flag for flag, is_raised in flags.items() if is_raised), *elsewhere)

    def _burst_durations(self, calls_per_duration: int) -> int:
        """Durations of the next burst."""
        return max(1, self._burst_calls // calls_per_duration) if self._is_queued else 1

    def _run_burst(self, task: Task, run: Step, count: int, calls_per_duration: int) -> bool:
        """Launch `count` durations behind a spin; return whether the spin ended too early."""
        calls = count * calls_per_duration
        spin_s = min(_SPIN_MARGIN * calls * self._launch_s, _LONGEST_SPIN_S)
        self._device.synchronize()
        if self._is_queued:
            self._spin(spin_s)
            if self._others:
                self._device.hold(self._others)
        now, result = self.now, self.take_result()
        stamps = [now()]
        for start_event, end_event in zip(self._starts[:count], self._ends, strict=False):
            task.run_setup()
            if self._cold:
                self._device.overwrite_cache()
            if not self._is_queued:  # other streams would begin before the start event
                self._device.synchronize()
            start_event.record()
            result = None
            result = run()
            end_event.record()
            task.run_teardown()
            stamps.append(now())
        self.result = result
        self._starts[-1].record()  # after the teardown, whose work is not the step's
        is_late = self._is_queued and self._starts[0].query()
        self._learn_launches(stamps, calls_per_duration, spin_s, is_late=is_late)
        return is_late

    def _learn_launches(
        self, stamps: list[int], calls_per_duration: int, spin_s: float, *, is_late: bool
    ) -> None:
        """Adapt the length of spins and bursts to the host's `stamps` around the durations.

        A late burst may have been held up by the full queue until its spin ended: the launch time
        is then not learned from this burst, unless its typical launch is the shortest so far. Where
        the spin was long enough for that, it is the burst that was too long: it is shortened to
        half, or to what came before the launch that took longest.
        """
        calls = (len(stamps) - 1) * calls_per_duration
        if not is_late:
            self._launch_s = (stamps[-1] - stamps[0]) * 1e-9 / calls
            self._least_launch_s = min(self._least_launch_s, self._launch_s)
            return
        self._spin.recalibrate()  # the clocks may have risen since
        launches = [end - start for start, end in pairwise(stamps)]
        typical_s = median(launches) * 1e-9 / calls_per_duration
        self._least_launch_s = min(self._least_launch_s, typical_s)
        needed_s = _SPIN_MARGIN * calls * self._least_launch_s
        if spin_s < min(needed_s, _LONGEST_SPIN_S):
            self._launch_s = self._least_launch_s
        else:
            before_longest = launches.index(max(launches)) * calls_per_duration
            self._burst_calls = max(1, min(before_longest or calls, calls // 2))
