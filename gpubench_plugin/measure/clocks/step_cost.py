"""Cost of a CUDA step to host and device, from untimed calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpubench_plugin.measure.clocks.base import HostClock, Task
from gpubench_plugin.measure.clocks.cuda_device import TorchCuda
from gpubench_plugin.measure.clocks.spin import Spin
from gpubench_plugin.measure.clocks.timed_calls import TimedCalls, counts, falls_behind

if TYPE_CHECKING:
    import torch

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
    if others and falls_behind(one, two) and growth_s > _OTHERS_SHARE * launch_s:
        return StepCost(
            launch_s=launch_s,
            alone_s=one.all_s,
            device_s=one.device_s,
            steady_s=growth_s,
            is_device_bound=False,
            waits=waits,
            outlasting_s=outlasting,
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
    return StepCost(
        launch_s=launch_s,
        alone_s=alone_s,
        device_s=device_s,
        steady_s=others_s if others_s > share * slower_s else slower_s,
        is_device_bound=is_device_bound and not elsewhere,
        waits=waits,
        outlasting_s=outlasting,
        elsewhere=elsewhere,
    )
