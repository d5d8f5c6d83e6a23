"""Cost of a CUDA step to host and device, from untimed calls behind spins.

Events of the current stream cannot time other streams: what those still work on afterwards is read
from the host's clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gpubench_plugin.core.quality_flags import ELSEWHERE
from gpubench_plugin.measure.clocks.base import HostClock, Task
from gpubench_plugin.measure.clocks.cuda_device import Event, TorchCuda

if TYPE_CHECKING:
    import torch


# About half a millisecond at 2 GHz, a thousand times the events' resolution.
_CALIBRATION_CYCLES = 1_000_000

# Spins whose length tells the rate: the device waits some microseconds for their launch. The wrong
# length of a shorter one does little harm to a block of 50 ms.
_LONG_S = 1e-3


class Spin:
    """Spin of a length in seconds; launches of the host queue behind it.

    The kernel counts cycles, whose rate an event pair measures at the first spin, and again at
    every long one, for the next. The rate follows the clock of the device, which an idle one lowers
    (an H200 reports 345 MHz idle and 1980 MHz busy): :meth:`recalibrate` after a warm-up, and where
    a spin ended too early. The device is synchronized between two spins.
    """

    def __init__(self, device: TorchCuda) -> None:
        self._device = device
        self._cycles_per_s = 0.0
        self._events: tuple[Event, ...] = ()
        self._timed_cycles = 0

    def __call__(self, seconds: float) -> None:
        """Queue a spin of about that length, if any."""
        if not seconds:
            return
        if not self._cycles_per_s:
            self._device.spin(_CALIBRATION_CYCLES)  # loads the kernel
            self._spin_timed(_CALIBRATION_CYCLES)
            self._device.synchronize()
        if self._timed_cycles:  # of the last spin, which is over
            start, end = self._events
            self._cycles_per_s = self._timed_cycles / (start.elapsed_time(end) * 1e-3)
            self._timed_cycles = 0
        cycles = round(seconds * self._cycles_per_s)
        if seconds >= _LONG_S:
            self._spin_timed(cycles)
        else:
            self._device.spin(cycles)

    def recalibrate(self) -> None:
        """Measure the rate again at the next spin."""
        self._cycles_per_s = 0.0

    def _spin_timed(self, cycles: int) -> None:
        self._events = self._events or (self._device.event(), self._device.event())
        start, end = self._events
        start.record()
        self._device.spin(cycles)
        end.record()
        self._timed_cycles = cycles


# Shorter work is left out: waiting for an idle device costs the host some 10 to 20 µs.
_LEAST_S = 5e-5
_LEAST_SHARE = 0.05


@dataclass(frozen=True, kw_only=True)
class CallTimes:
    """Seconds of calls that began with an idle device."""

    launch_s: float
    """The host, until the last call returned."""
    device_s: float
    """Between the events around the calls."""
    event_s: float
    """Between two events with nothing between them."""
    outlasting_s: float
    """Other streams, after the last event."""
    is_reported: bool
    """Whether torch reported a wait inside the calls, if it was to."""

    @property
    def all_s(self) -> float:
        """From the first event until all streams were done."""
        return self.device_s + self.outlasting_s


class TimedCalls:
    """Calls of a step, with its setup and teardown, between events."""

    def __init__(self, task: Task, device: TorchCuda, spin: Spin, now: HostClock) -> None:
        self._task = task
        self._device = device
        self._spin = spin
        self._now = now
        self._launch_s = 0.0
        self._events = [device.event() for _ in range(3)]

    def run(
        self,
        calls: int = 1,
        *,
        spin_s: float = 0.0,
        held: Sequence[torch.cuda.Stream] = (),
        detects_waits: bool = False,
    ) -> CallTimes:
        """Call the step; the current stream and those `held` are behind a spin."""
        self._task.run_setup()
        self._device.synchronize()
        self._spin(spin_s)
        if held:
            self._device.hold(held)
        launch = partial(self._launch, calls)
        is_reported = detects_waits and self._device.synchronizes(launch)
        if not detects_waits:
            launch()
        before, start, end = self._events
        outlasting = outlasting_s(self._device, end, self._now)
        self._task.run_teardown()
        return CallTimes(
            launch_s=self._launch_s,
            device_s=start.elapsed_time(end) * 1e-3,
            event_s=before.elapsed_time(start) * 1e-3,
            outlasting_s=outlasting,
            is_reported=is_reported,
        )

    def _launch(self, calls: int) -> None:
        before, start, end = self._events
        before.record()
        start.record()
        began = self._now()
        for index in range(calls):
            if index:
                self._task.run_teardown()
                self._task.run_setup()
            self._task.step()
        self._launch_s = (self._now() - began) * 1e-9
        end.record()


def falls_behind(one: CallTimes, two: CallTimes) -> bool:
    """Whether other streams fall behind with the second of `two` calls, compared with `one`."""
    return counts(two.outlasting_s - one.outlasting_s, one.device_s)


def outlasting_s(device: TorchCuda, last: Event, now: HostClock) -> float:
    """Seconds of the host for which other streams work on after the event `last`.

    Synchronizes with the device. Other work of the host in between does not count, as it would if
    the host's time of the whole block were compared with that of its events.
    """
    last.synchronize()
    current_done = now()
    device.synchronize()
    return (now() - current_done) * 1e-9


def counts(outlasting: float, timed: float) -> bool:
    """Whether work elsewhere outlasts `timed` seconds of events by over 5%, and over 50 µs."""
    return outlasting > max(_LEAST_S, _LEAST_SHARE * timed)


def elsewhere_evidence(outlasting: float, timed: float) -> Mapping[str, float]:
    """Evidence of a block for :func:`elsewhere_flags`; what does not count is zero."""
    return {"events_s": timed, "elsewhere_s": outlasting if counts(outlasting, timed) else 0.0}


def elsewhere_flags(evidence: Mapping[str, float]) -> tuple[str, ...]:
    """``elsewhere``: other streams outlasted the events by over 5% of all blocks."""
    is_long = evidence["elsewhere_s"] > _LEAST_SHARE * evidence["events_s"]
    return (ELSEWHERE,) if is_long else ()


COST_CALLS = 6
"""Calls of :func:`step_cost`, whatever the step does: ranks that differ stay in step."""

# Launch time over device time up to which the device is the slower side: 5% for their jitter.
_DEVICE_BOUND_SHARE = 0.95

# A launch costs the host a microsecond or more, and about a thousand fit into the queue: it is not
# full for half of a spin this short, so that a longer wait is the step's own.
_QUEUE_FILLS_S = 2e-3

# Lengths of a spin over the launch behind it: one that the launch surely does not outlast, and one
# whose end shows in it. The constant covers the spin's own launch.
_OUTLASTING = 1.5
_NOTICEABLE = 3.0
_SPIN_S = 1e-4

# Time of a call over that of the slower of launch and work from which other streams are the slowest
# part: 2% for the host's jitter. Over the device's work alone, which varies less, 0.5%.
_OTHERS_SHARE = 1.02
_OTHERS_DEVICE_SHARE = 1.005


@dataclass(frozen=True, kw_only=True)
class BlockTimes:
    """Seconds of a block of `calls` that began on an idle device.

    `all_s`: from the first event until the last, or until all streams were done if they work
    `elsewhere`. `first_s`: of a call of the first duration, `later_s`: of one of the others.
    """

    all_s: float
    first_s: float
    later_s: float
    calls: int
    elsewhere: bool

    def steady_s(self, alone_s: float) -> float:
        """Seconds of a call among others, of a step that takes `alone_s` on an idle device.

        Zero if a single call does not tell, or all of it if other streams fall behind.
        """
        if self.calls == 1:
            return alone_s if self.elsewhere else 0.0
        return (self.all_s - alone_s) / (self.calls - 1) if self.elsewhere else self.later_s


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """Seconds of one call on host and device."""

    launch_s: float
    """The host, until the call returns."""
    alone_s: float
    """The device, of a call on an idle one: with the waiting for launches, and with the end of
    other streams if they fall behind. If those are held, of a call that is behind a spin."""
    device_s: float
    """The work of the current stream, without waiting."""
    steady_s: float
    """A call among others, which the slowest of host, current and other streams decides."""
    is_device_bound: bool
    """Whether the current stream decides it."""
    waits: bool
    """Whether the call returns only after it has waited for the device."""
    outlasting_s: float
    """Other streams, after the current one."""
    elsewhere: bool
    """Whether other streams fall behind the current one."""
    held: Sequence[torch.cuda.Stream] = ()
    """Those that fall behind, where torch has made them current: they can wait for a spin."""

    @property
    def start_up_s(self) -> float:
        """Seconds by which the first call on an idle device takes longer than the others.

        That is the difference of `alone_s` and `steady_s`. If the device starts later by so much,
        all calls are alike, and the end of the first is not delayed. If the current stream is the
        slowest part, a start behind the whole launch costs nothing either, whatever the jitter of
        the launches. If it is not, a longer wait would hide time of the host or of other streams,
        which go on meanwhile.
        """
        start_up_s = max(0.0, self.alone_s - self.steady_s)
        return max(self.launch_s, start_up_s) if self.is_device_bound else start_up_s


def step_cost(
    task: Task, *, device: TorchCuda, spin: Spin, now: HostClock, last: BlockTimes | None = None
) -> StepCost:
    """Cost of the step of `task`, from calls with its setup and teardown.

    The first begins on an idle device, and torch reports the waits inside its operations. The
    second is launched behind a spin that outlasts the launch: from its start to its end the device
    has nothing to wait for, unless the step filled the queue; then `device_s` is an upper bound.
    The third behind a short spin shows waits that torch does not report: a host that does not wait
    needs no longer for it. A fourth, and two that follow each other, show by how much other streams
    fall behind with every call, if those are behind the spin as well.

    Of the `last` block of several calls `steady_s` is taken if other streams are the slowest part.
    Else it is that of the first calls, whose launch is one with that of `alone_s`, so that its
    jitter cancels out.
    """
    calls, times = TimedCalls(task, device, spin, now), []
    streams = device.other_streams(lambda: times.append(calls.run(detects_waits=True)))
    others = streams if task.is_bare else ()  # else they may be those of setup and teardown
    first = times[0]
    launch_s, alone_s, outlasting = first.launch_s, first.device_s, first.outlasting_s
    behind_launch = calls.run(spin_s=_OUTLASTING * launch_s + _SPIN_S)
    spin_s = min(_NOTICEABLE * launch_s + _SPIN_S, _QUEUE_FILLS_S)
    behind_spin = calls.run(spin_s=spin_s)
    waits = first.is_reported or behind_spin.launch_s - launch_s >= spin_s / 2
    spin_s = 2 * _OUTLASTING * launch_s + _SPIN_S if others else 0.0
    one, two = (calls.run(count, spin_s=spin_s, held=others) for count in (1, 2))
    growth_s = two.all_s - one.all_s
    cost = partial(StepCost, launch_s=launch_s, waits=waits, outlasting_s=outlasting)
    if others and falls_behind(one, two) and growth_s > _OTHERS_SHARE * launch_s:
        return cost(
            alone_s=one.all_s,
            device_s=one.device_s,
            steady_s=growth_s,
            is_device_bound=False,
            elsewhere=True,
            held=others,
        )
    # A device that waits for other ranks, behind spins of their own, does no work of its own, and
    # in a call among others it does not wait for streams that had the time of the one before.
    device_s = min(max(0.0, behind_launch.device_s - behind_launch.event_s), alone_s)
    elsewhere = counts(outlasting, alone_s) if last is None else last.elsewhere
    if elsewhere:
        alone_s += outlasting
    elif last is not None and last.calls > 1:
        device_s = min(device_s, last.later_s)
    slower_s = max(launch_s, device_s)
    unknown_s = alone_s if elsewhere else 0.0
    others_s = unknown_s if last is None else last.steady_s(alone_s)
    share = _OTHERS_SHARE if launch_s > device_s else _OTHERS_DEVICE_SHARE
    is_device_bound = (
        launch_s < _DEVICE_BOUND_SHARE * device_s and others_s <= _OTHERS_DEVICE_SHARE * device_s
    )
    return cost(
        alone_s=alone_s,
        device_s=device_s,
        steady_s=others_s if others_s > share * slower_s else slower_s,
        is_device_bound=is_device_bound and not elsewhere,
        elsewhere=elsewhere,
    )
