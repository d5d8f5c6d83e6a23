"""Interface of the CUDA clocks to ``torch.cuda``, which tests replace by a fake."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Protocol, Self

import torch

from gpubench_plugin.measure.clocks.base import Step


class Event(Protocol):
    """Timing event, with torch's method names."""

    def record(self) -> None:
        """Record the event in the queue."""

    def query(self) -> bool:
        """Whether the device has reached the event."""

    def synchronize(self) -> None:
        """Wait until the device has reached the event."""

    def elapsed_time(self, end_event: Self, /) -> float:
        """Milliseconds of device time until the later event."""


class TorchCuda:
    """Device that executes a queue asynchronously.

    By the public ``torch.cuda``, except ``_sleep``: torch has no public spin kernel.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def current(self) -> AbstractContextManager[None]:
        """Make it the current device, so that events enter its own queue."""
        return torch.cuda.device(self._device)

    def event(self) -> Event:
        """Create a timing event."""
        return torch.cuda.Event(enable_timing=True)

    def synchronize(self) -> None:
        """Wait for all streams of the device."""
        torch.cuda.synchronize(self._device)

    def spin(self, cycles: int) -> None:
        """Queue an idle kernel of that many cycles."""
        torch.cuda._sleep(cycles)

    def other_streams(self, call: Step) -> tuple[torch.cuda.Stream, ...]:
        """Streams of the device, other than the current one, that `call` makes current.

        As ``with torch.cuda.stream(…)`` does, by ``torch.cuda.set_stream``, which is wrapped during
        the call. Streams of libraries, or set in C++, are not noticed.
        """
        noticed: dict[int, torch.cuda.Stream] = {}
        set_stream = torch.cuda.set_stream

        def notice(stream: torch.cuda.Stream) -> None:
            if stream is not None and stream.device == self._device:
                noticed[stream.cuda_stream] = stream
            set_stream(stream)

        torch.cuda.set_stream = notice
        try:
            call()
        finally:
            torch.cuda.set_stream = set_stream
        noticed.pop(torch.cuda.current_stream(self._device).cuda_stream, None)
        return tuple(noticed.values())

    def hold(self, streams: Sequence[torch.cuda.Stream]) -> None:
        """Let later work of `streams` wait for what the current one has queued."""
        gate = torch.cuda.Event()
        gate.record()
        for stream in streams:
            stream.wait_event(gate)

    def allocate_scratch(self) -> int:
        """Allocate what :meth:`overwrite_cache` writes to, once; return its bytes."""
        return self._scratch.nbytes

    @cached_property
    def _scratch(self) -> torch.Tensor:
        # Twice the cache, since its replacement is not strictly LRU.
        size = 2 * torch.cuda.get_device_properties(self._device).L2_cache_size
        return torch.empty(size, dtype=torch.uint8, device=self._device)

    def overwrite_cache(self) -> None:
        """Queue a write that evicts the step's data from the L2 cache."""
        self._scratch.zero_()

    def synchronizes(self, step: Step) -> bool:
        """Whether torch's synchronization debug mode warns during one call of `step`.

        It detects waits inside operations (``.item()``, a copy to the host), not an explicit
        ``torch.cuda.synchronize()``. Other warnings are those of the calls before.
        """
        mode = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as recorded:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                step()
            finally:
                torch.cuda.set_sync_debug_mode(mode)
        return any("called a synchronizing" in str(w.message).lower() for w in recorded)
