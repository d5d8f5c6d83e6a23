"""Peak memory of device and process during a benchmark."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from types import ModuleType
from typing import Self

import torch

from gpubench_plugin.core.quality_flags import SINCE_START

# Writing 5 to clear_refs resets the peak to the resident size: proc_pid_clear_refs(5).
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_STATUS = Path("/proc/self/status")


class PeakMemory:
    """Context manager that records memory peaks.

    On an accelerator they are torch's allocated (`peak_bytes`) and reserved memory
    (`reserved_bytes`). On a CPU, where torch does not count (see :class:`TensorMemory`),
    `process_bytes` is the peak resident size of the process since the entry, interpreter and
    libraries included; if the system cannot reset it, since the start of the process, and flagged.
    Peaks without a counter (MPS) stay None.

    `excluded_bytes` of the device, allocated before the entry and until the exit, count neither as
    allocated nor, but for the rounding of the allocator (to 2 MiB), as reserved.
    """

    def __init__(
        self,
        device: torch.device,
        excluded_bytes: int = 0,
        *,
        clear: Path = _CLEAR,
        status: Path = _STATUS,
    ) -> None:
        self.peak_bytes: int | None = None
        self.reserved_bytes: int | None = None
        self.process_bytes: int | None = None
        self.flags: tuple[str, ...] = ()
        self._device = device
        self._excluded_bytes = excluded_bytes
        self._clear = clear
        self._status = status

    @property
    def facts(self) -> dict[str, float]:
        """Known peaks, by fact name."""
        peaks = {
            "peak_memory_bytes": self.peak_bytes,
            "peak_reserved_bytes": self.reserved_bytes,
            "process_peak_memory_bytes": self.process_bytes,
        }
        return {name: float(peak) for name, peak in peaks.items() if peak is not None}

    def __enter__(self) -> Self:
        if self._device.type == "cpu":
            self.flags = () if self._reset_resident() else (SINCE_START,)
        elif counters := self._counters():
            counters.reset_peak_memory_stats(self._device)
        return self

    def __exit__(self, *_: object) -> None:
        if self._device.type == "cpu":
            self.process_bytes = _since_start() if self.flags else _resident_peak(self._status)
        elif counters := self._counters():
            allocated = int(counters.max_memory_allocated(self._device))
            reserved = int(counters.max_memory_reserved(self._device))
            self.peak_bytes = allocated - self._excluded_bytes
            self.reserved_bytes = reserved - self._excluded_bytes

    def _counters(self) -> ModuleType | None:
        module = torch.get_device_module(self._device)
        return module if hasattr(module, "reset_peak_memory_stats") else None

    def _reset_resident(self) -> bool:
        """Reset the process's peak; return whether it can be read."""
        try:
            self._clear.write_text(_RESET_PEAK, encoding="ascii")
            _resident_peak(self._status)
        except (OSError, ValueError):
            return False
        return True


def _resident_peak(status: Path) -> int:
    """``VmHWM`` in bytes; Linux reports kibibytes."""
    for line in status.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    message = f"{status} does not contain VmHWM"
    raise ValueError(message)


def _since_start() -> int:
    """Largest resident size in bytes; getrusage(2) reports kibibytes, on macOS bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
