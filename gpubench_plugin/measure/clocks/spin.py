"""A spin of known length: while the device turns idly, what the host queues waits behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpubench_plugin.measure.clocks.cuda_device import CudaDevice

_CALIBRATION_CYCLES = 1_000_000


class Spin:
    """Spins for seconds instead of cycles, by one calibration against the device's events."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._cycles_per_s: float | None = None

    def __call__(self, seconds: float) -> None:
        """Queue a spin of about that length."""
        if self._cycles_per_s is None:
            self._cycles_per_s = self._calibrated()
        self._device.spin(round(seconds * self._cycles_per_s))

    def _calibrated(self) -> float:
        start, end = self._device.event(), self._device.event()
        self._device.spin(_CALIBRATION_CYCLES)  # the first one loads the kernel
        start.record()
        self._device.spin(_CALIBRATION_CYCLES)
        end.record()
        self._device.synchronize()
        return _CALIBRATION_CYCLES / (start.elapsed_time(end) * 1e-3)
