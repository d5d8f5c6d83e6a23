"""Cost of a CUDA step to host and device, from three untimed calls."""

from __future__ import annotations

from dataclasses import dataclass

from gpubench_plugin.measure.clocks.base import HostClock, Task
from gpubench_plugin.measure.clocks.cuda_device import TorchCuda
from gpubench_plugin.measure.clocks.other_streams import counts
from gpubench_plugin.measure.clocks.spin import Spin
from gpubench_plugin.measure.clocks.timed_call import TimedCall

COST_CALLS = 3
"""Calls of :func:`step_cost`, whatever the step does: ranks that differ stay in step."""

# Launch time over device time up to which the device is the slower side: 5 % for their jitter. Not
# measured.
_DEVICE_BOUND_SHARE = 0.95

# A launch costs the host a microsecond or more, and about a thousand fit into the queue: it is not
# full for half of a spin this short, so that a longer wait is the step's own. Not measured.
_QUEUE_FILLS_S = 2e-3

# Lengths of a spin over the launch behind it: one that the launch surely does not outlast, and one
# whose end shows in it. The constant covers the spin's own launch. Not measured.
_OUTLASTING = 1.5
_NOTICEABLE = 3.0
_SPIN_S = 1e-4

# Time of a call over that of the slower of launch and work from which other streams are the slowest
# part: 2 % for the host's jitter. Over the device's work alone, which varies less, 0.5 %. Not
# measured.
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
    """Seconds of one call on host and device.

    `launch_s`: the host, until the call returns. `alone_s`: the device, of a call on an idle one:
    it includes the waiting for launches, and the end of other streams if they fall behind.
    `device_s`: the work of the current stream, without waiting. `steady_s`: a call among others,
    which the slowest of host, current stream and other streams decides. `is_device_bound`: that is
    the current stream. `waits`: the call returns only after it has waited for the device.
    `outlasting_s`: other streams, after it. `elsewhere`: they fall behind the current one.
    """

    launch_s: float
    alone_s: float
    device_s: float
    steady_s: float
    is_device_bound: bool
    waits: bool
    outlasting_s: float
    elsewhere: bool

    @property
    def start_up_s(self) -> float:
        """Seconds by which the first call on an idle device takes longer than the others.

        That is the difference of `alone_s` and `steady_s`. If the device starts later by so much,
        all calls are alike, and the end of the first is not delayed. If the current stream is the
        slowest part, a start behind the whole launch costs nothing either, whatever the jitter of
        the launches. If it is not, a longer wait would hide time of the host or of other streams,
        which go on meanwhile.
        """
        if self.is_device_bound:
            return self.launch_s
        return max(0.0, self.alone_s - self.steady_s)


def step_cost(
    task: Task, *, device: TorchCuda, spin: Spin, now: HostClock, last: BlockTimes | None = None
) -> StepCost:
    """Cost of the step of `task`, from three calls with its setup and teardown.

    The first begins on an idle device, and torch reports the waits inside its operations. The
    second is launched behind a spin that outlasts the launch: from its start to its end the device
    has nothing to wait for, unless the step filled the queue; then `device_s` is an upper bound.
    The third behind a short spin shows waits that torch does not report: a host that does not wait
    needs no longer for it.

    Of the `last` block of several calls `steady_s` is taken if other streams are the slowest part.
    Else it is that of the three calls, whose launch is one with that of `alone_s`, so that its
    jitter cancels out.
    """
    call = TimedCall(task, device, spin, now)
    is_reported = call.run(detects_waits=True)
    launch_s, alone_s, outlasting = call.launch_s, call.device_s, call.outlasting_s
    call.run(spin_s=_OUTLASTING * launch_s + _SPIN_S)
    device_s = max(0.0, call.device_s - call.event_s)
    spin_s = min(_NOTICEABLE * launch_s + _SPIN_S, _QUEUE_FILLS_S)
    call.run(spin_s=spin_s)
    waits = is_reported or call.launch_s - launch_s >= spin_s / 2
    # A device that waits for other ranks, behind spins of their own, does no work of its own.
    device_s = min(device_s, alone_s)
    elsewhere = counts(outlasting, alone_s) if last is None else last.elsewhere
    if elsewhere:
        alone_s += outlasting
    slower_s = max(launch_s, device_s)
    unknown_s = alone_s if elsewhere else 0.0
    others_s = unknown_s if last is None else last.steady_s(alone_s)
    is_device_bound = (
        launch_s < _DEVICE_BOUND_SHARE * device_s and others_s <= _OTHERS_DEVICE_SHARE * device_s
    )
    return StepCost(
        launch_s=launch_s,
        alone_s=alone_s,
        device_s=device_s,
        steady_s=others_s if others_s > _OTHERS_SHARE * slower_s else slower_s,
        is_device_bound=is_device_bound and not elsewhere,
        waits=waits,
        outlasting_s=outlasting,
        elsewhere=elsewhere,
    )
