"""Work on streams other than the current one, and untimed calls that show what a step costs.

Events of the current stream cannot time other streams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpubench_plugin.core.quality_flags import ELSEWHERE
from gpubench_plugin.measure.clocks.base import HostClock, Task
from gpubench_plugin.measure.clocks.cuda_device import Event, TorchCuda
from gpubench_plugin.measure.clocks.spin import Spin

if TYPE_CHECKING:
    import torch

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
    return {
        "events_s": timed,
        "elsewhere_s": outlasting if counts(outlasting, timed) else 0.0,
    }


def elsewhere_flags(evidence: Mapping[str, float]) -> tuple[str, ...]:
    """``elsewhere``: other streams outlasted the events by over 5% of all blocks."""
    is_long = evidence["elsewhere_s"] > _LEAST_SHARE * evidence["events_s"]
    return (ELSEWHERE,) if is_long else ()
