"""Spin kernel of a length in seconds, which keeps a CUDA stream waiting."""

from __future__ import annotations

from gpubench_plugin.measure.clocks.cuda_device import TorchCuda

# About half a millisecond at 2 GHz, a thousand times the events' resolution.
_CALIBRATION_CYCLES = 1_000_000


class Spin:
    """Spin of a length in seconds; launches of the host queue behind it.

    The kernel counts cycles, whose rate an event pair measures at the first spin. The rate follows
    the clock of the device, which an idle one lowers (an H200 reports 345 MHz idle and 1980 MHz
    busy): :meth:`recalibrate` after a warm-up, and where a spin ended too early.
    """

    def __init__(self, device: TorchCuda) -> None:
        self._device = device
        self._cycles_per_s: float | None = None

    def __call__(self, seconds: float) -> None:
        """Queue a spin of about that length."""
        if self._cycles_per_s is None:
            self._cycles_per_s = self._calibrate()
        self._device.spin(round(seconds * self._cycles_per_s))

    def recalibrate(self) -> None:
        """Measure the rate again at the next spin."""
        self._cycles_per_s = None

    def _calibrate(self) -> float:
        start, end = self._device.event(), self._device.event()
        self._device.spin(_CALIBRATION_CYCLES)  # loads the kernel
        start.record()
        self._device.spin(_CALIBRATION_CYCLES)
        end.record()
        self._device.synchronize()
        return _CALIBRATION_CYCLES / (start.elapsed_time(end) * 1e-3)
