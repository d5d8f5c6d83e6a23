"""Spin kernel of a length in seconds, which keeps a CUDA stream waiting."""

from __future__ import annotations

from gpubench_plugin.measure.clocks.cuda_device import Event, TorchCuda

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
        self._cycles_per_s: float | None = None
        self._events: tuple[Event, Event] | None = None
        self._timed_cycles = 0

    def __call__(self, seconds: float) -> None:
        """Queue a spin of about that length, if any."""
        if not seconds:
            return
        if self._cycles_per_s is None:
            self._cycles_per_s = self._calibrate()
        elif self._timed_cycles:
            self._cycles_per_s = self._rate_of_last()
        cycles = round(seconds * self._cycles_per_s)
        self._timed_cycles = cycles if seconds >= _LONG_S else 0
        if not self._timed_cycles:
            self._device.spin(cycles)
            return
        if self._events is None:
            self._events = self._device.event(), self._device.event()
        start, end = self._events
        start.record()
        self._device.spin(cycles)
        end.record()

    def recalibrate(self) -> None:
        """Measure the rate again at the next spin."""
        self._cycles_per_s = None

    def _rate_of_last(self) -> float:
        """Cycles per second of the last spin, a long one, which is over."""
        assert self._events is not None
        start, end = self._events
        return self._timed_cycles / (start.elapsed_time(end) * 1e-3)

    def _calibrate(self) -> float:
        start, end = self._device.event(), self._device.event()
        self._device.spin(_CALIBRATION_CYCLES)  # loads the kernel
        start.record()
        self._device.spin(_CALIBRATION_CYCLES)
        end.record()
        self._device.synchronize()
        return _CALIBRATION_CYCLES / (start.elapsed_time(end) * 1e-3)
