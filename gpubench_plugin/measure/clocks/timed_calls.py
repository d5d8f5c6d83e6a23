"""Untimed calls of a step on a CUDA device, for what they cost host, stream and other streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpubench_plugin.measure.clocks.base import HostClock, Task
from gpubench_plugin.measure.clocks.cuda_device import TorchCuda
from gpubench_plugin.measure.clocks.other_streams import counts, outlasting_s
from gpubench_plugin.measure.clocks.spin import Spin

if TYPE_CHECKING:
    import torch


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
        is_reported = False
        if detects_waits:
            is_reported = self._device.synchronizes(lambda: self._launch(calls))
        else:
            self._launch(calls)
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
