"""Memory of device and process: peaks, and growth over the timed calls. Imports no torch."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Self

import psutil

from gpubench_plugin.core.quality_flags import GROWING_MEMORY, SINCE_START, UNCOLLECTED
from gpubench_plugin.environment.hardware import largest_resident_bytes
from gpubench_plugin.measure.process_state import release_memory

if TYPE_CHECKING:
    import torch

# Writing 5 to clear_refs resets the peak to the resident size: proc_pid_clear_refs(5).
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_STATUS = Path("/proc/self/status")


class PeakMemory:
    """Context manager that records memory peaks.

    They are `facts`: on an accelerator of the memory that torch has allocated, on a CPU, where
    torch does not count (see :mod:`.tensor_memory`), the peak resident size of the process since
    the entry, interpreter and libraries included; if the system cannot reset it, since the start of
    the process, and flagged. Without a counter (MPS) there are none.

    `excluded_bytes` of the device, allocated before the entry and until the exit, do not count.
    """

    def __init__(self, device: torch.device, excluded_bytes: int = 0) -> None:
        self.facts: dict[str, float] = {}
        self.flags: tuple[str, ...] = ()
        self._device = device
        self._peak_before_bytes = 0
        self._excluded_bytes = excluded_bytes
        module = None if device.type == "cpu" else _module(device)
        self._counters = module if hasattr(module, "reset_peak_memory_stats") else None

    def __enter__(self) -> Self:
        if self._device.type == "cpu":
            self.flags = () if _reset_resident() else (SINCE_START,)
        elif counters := self._counters:
            counters.reset_peak_memory_stats(self._device)
        return self

    def __exit__(self, *_: object) -> None:
        if self._device.type == "cpu":
            peak = largest_resident_bytes() if self.flags else self._peak_since_entry()
            self.facts["process_peak_memory_bytes"] = float(peak)
        elif counters := self._counters:
            allocated = counters.max_memory_allocated(self._device) - self._excluded_bytes
            self.facts["peak_memory_bytes"] = float(allocated)

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """Leave out what the process takes meanwhile, if its peak can be reset."""
        is_reset = self._device.type == "cpu" and not self.flags
        if is_reset:
            self._peak_before_bytes = self._peak_since_entry()
        try:
            yield
        finally:
            if is_reset:
                _reset_resident()

    def _peak_since_entry(self) -> int:
        return max(self._peak_before_bytes, _resident_peak())


def _reset_resident() -> bool:
    """Reset the process's peak; return whether it can be read."""
    with suppress(OSError, ValueError):
        _CLEAR.write_text(_RESET_PEAK, encoding="ascii")
        return _resident_peak() > 0
    return False


def _resident_peak() -> int:
    """``VmHWM`` in bytes; Linux reports kibibytes."""
    _, _, peak = _STATUS.read_text(encoding="ascii", errors="replace").partition("VmHWM:")
    return int(peak.partition("kB")[0]) * 1024


_PARTS: Final = 4
"""Parts of the timed calls: a leak grows in all, a cache or the heap fills in the first."""

_LEAST_BYTES: Final = 4 * 2**20
"""Above the steps in which an allocator grows and trims its heap (mallopt(3))."""

_LEAST_PER_DURATION: Final = 64
"""Bytes per duration of a leak: the recording takes 8 for a duration, 8 for its round, and as much
again while the arrays are reallocated."""

_STEADY: Final = 0.5
"""Growth of each part as a share of its growth if all parts grew alike."""

_UNCOLLECTED: Final = 0.05
"""Share of an accelerator's memory in use that garbage has to hold for its flag."""


class MemoryGrowth:
    """Detects leaks from the memory in use between timed blocks.

    On an accelerator that is the memory allocated by torch, on a CPU the anonymous part of the
    resident size (Linux), since the system drops pages of files as it likes. A leak is not detected
    while it fills free memory that the process cannot return, such as pools of Python objects.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._read = _reader(device)
        self._readings = array("q")

    def begin(self) -> None:
        """Return free memory to the system once after the first call; a leak would fill it first.

        Not later: the next calls fault new pages in.
        """
        release_memory(self._device)

    def block_ended(self) -> None:
        """Read the counter after a timed block."""
        self._readings.append(self._read())

    def flags(self, block_calls: Sequence[int], calls_per_duration: int) -> tuple[str, ...]:
        """``growing_memory`` and ``uncollected``, as far as they apply, given the calls per block.

        Garbage that Python's collector, disabled while timing, frees afterwards is no leak. On an
        accelerator it is in the peak, and flagged there; a CPU's peak is that of the process.
        """
        is_device = self._device.type != "cpu"
        is_growing = grows(self._readings, block_calls, calls_per_duration)
        if not (is_growing or is_device):
            return ()
        before = self._read()
        release_memory(self._device)
        after = self._read()
        is_garbage = before - after >= max(_LEAST_BYTES, _UNCOLLECTED * before)
        is_leak = is_growing and after - self._readings[0] > _STEADY * (
            self._readings[-1] - self._readings[0]
        )
        raised = {GROWING_MEMORY: is_leak, UNCOLLECTED: is_device and is_garbage}
        return tuple(flag for flag, is_raised in raised.items() if is_raised)


def grows(
    bytes_in_use: Sequence[int], block_calls: Sequence[int], calls_per_duration: int = 1
) -> bool:
    """Whether `bytes_in_use` (after each block) grows evenly through all parts of the calls."""
    if len(bytes_in_use) != len(block_calls) or len(bytes_in_use) < _PARTS:
        return False
    calls = list(accumulate(block_calls))
    total, span = bytes_in_use[-1] - bytes_in_use[0], calls[-1] - calls[0]
    if total < max(_LEAST_BYTES, _LEAST_PER_DURATION * span / calls_per_duration):
        return False
    middles = []
    for part in range(_PARTS):
        bounds = (calls[0] + span * part / _PARTS, calls[0] + span * (part + 1) / _PARTS)
        block_indices = [n for n, call in enumerate(calls) if bounds[0] <= call <= bounds[1]]
        if not block_indices:
            return False
        middle_bytes = median(bytes_in_use[n] for n in block_indices)
        middles.append((median(calls[n] for n in block_indices), middle_bytes))
    return all(
        later_bytes - earlier_bytes >= _STEADY * total / span * (later_call - earlier_call)
        for (earlier_call, earlier_bytes), (later_call, later_bytes) in pairwise(middles)
    )


def _module(device: torch.device) -> Any:
    import torch

    return torch.get_device_module(device)


def _reader(device: torch.device) -> Callable[[], int]:
    """Function that reads the memory in use; always zero where there is no counter."""
    if device.type != "cpu":
        allocated = getattr(_module(device), "memory_allocated", lambda _: 0)
        return lambda: int(allocated(device))
    if not psutil.LINUX:
        return lambda: 0
    process = psutil.Process()

    def anonymous() -> int:
        memory = process.memory_info()
        return int(memory.rss - memory.shared)

    return anonymous
