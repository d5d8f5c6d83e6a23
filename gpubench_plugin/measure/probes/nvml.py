"""GPU throttling, as reported by NVML."""

from __future__ import annotations

import importlib
import warnings
from contextlib import suppress
from typing import Any, Self

import torch

from gpubench_plugin.quality_flags import THROTTLED

# Bits of nvmlClocksEventReasons that slow the GPU down. Left out: idle, clocks set by the user,
# sync boost and the display clock setting. Source: NVML API reference.
_REASONS = {
    0x0000_0000_0000_0004: "software power cap",
    0x0000_0000_0000_0008: "hardware slowdown",
    0x0000_0000_0000_0020: "software thermal slowdown",
    0x0000_0000_0000_0040: "hardware thermal slowdown",
    0x0000_0000_0000_0080: "hardware power brake",
}


class Throttling:
    """Context manager that queries throttle reasons at entry and exit.

    `reasons` names those of either; it stays None on devices other than CUDA and without the
    optional ``pynvml``.
    """

    def __init__(self, device: torch.device) -> None:
        self.reasons: tuple[str, ...] | None = None
        self._device = device
        self._nvml: Any = None
        self._handle: Any = None

    @property
    def flags(self) -> tuple[str, ...]:
        """``throttled``, if there was a reason."""
        return (THROTTLED,) if self.reasons else ()

    def __enter__(self) -> Self:
        if self._device.type == "cuda":
            self._connect()
        self._read_reasons()
        return self

    def __exit__(self, *_: object) -> None:
        self._read_reasons()
        if self._nvml is not None:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()

    def _connect(self) -> None:
        """Find the device by UUID, since NVML and CUDA indices may differ."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the package pynvml warns that it is deprecated
                nvml = importlib.import_module("pynvml")
        except ImportError:
            return
        with suppress(nvml.NVMLError):
            nvml.nvmlInit()
            self._nvml = nvml
            uuid = torch.cuda.get_device_properties(self._device).uuid
            self._handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")

    def _read_reasons(self) -> None:
        """Add the current throttle reasons."""
        if self._handle is None:
            return
        with suppress(self._nvml.NVMLError):
            bits = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)
            current = {name for bit, name in _REASONS.items() if bits & bit}
            self.reasons = tuple(sorted(current.union(self.reasons or ())))
