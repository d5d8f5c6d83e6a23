"""Single calls of a step on a CUDA device, timed for what they cost each side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpubench_plugin.measure.clocks.base import HostClock, Task
from gpubench_plugin.measure.clocks.cuda_device import TorchCuda
from gpubench_plugin.measure.clocks.other_streams import outlasting_s
from gpubench_plugin.measure.clocks.spin import Spin

if TYPE_CHECKING:
    import torch


class TimedCall:
    """Calls of a step between events, and the seconds of the last one.

    `launch_s` are the host's, `device_s` those between the events around the call, `event_s` those
    between two events with nothing between them, `outlasting_s` those of other streams afterwards.
    """

    def __init__(self, task: Task, device: TorchCuda, spin: Spin, now: HostClock) -> None:
        self.launch_s = self.device_s = self.event_s = self.outlasting_s = 0.0
        self._task = task
        self._device = device
        self._spin = spin
        self._now = now
        self._events = [device.event() for _ in range(3)]

    def run(
        self,
        *,
        spin_s: float = 0.0,
        held: Sequence[torch.cuda.Stream] = (),
        detects_waits: bool = False,
    ) -> bool:
        """Call the step once; return whether torch reported a wait, if asked to.

        The current stream and those `held` are behind a spin.
        """
        self._task.run_setup()
        self._device.synchronize()
        self._spin(spin_s)
        if held:
            self._device.hold(held)
        is_reported = False
        if detects_waits:
            is_reported = self._device.synchronizes(self._launch)
        else:
            self._launch()
        before, start, end = self._events
        self.outlasting_s = outlasting_s(self._device, end, self._now)
        self.event_s = before.elapsed_time(start) * 1e-3
        self.device_s = start.elapsed_time(end) * 1e-3
        self._task.run_teardown()
        return is_reported

    def _launch(self) -> None:
        before, start, end = self._events
        before.record()
        start.record()
        began = self._now()
        self._task.step()
        self.launch_s = (self._now() - began) * 1e-9
        end.record()
