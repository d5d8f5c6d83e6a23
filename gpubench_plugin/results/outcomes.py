"""Mapping of exceptions to outcomes, and release of memory they keep alive."""

from __future__ import annotations

import gc
import re
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from gpubench_plugin.core.errors import Misuse, Unsupported, UsageProblem, error_text, with_causes
from gpubench_plugin.core.format import byte_size
from gpubench_plugin.core.records import Outcome
from gpubench_plugin.environment.device_errors import (
    failed_allocation,
    failures_as_warnings,
    lost_context,
    lost_context_text,
)
from gpubench_plugin.environment.hardware import largest_resident_bytes
from gpubench_plugin.environment.torch_use import imported_torch

_REQUESTED: Final = re.compile(
    r"(?:tried|unable) to allocate (?P<amount>[\d.]+) (?P<unit>bytes|[KMGTP]iB)", re.IGNORECASE
)
"""Amounts in messages: torch on CUDA ``Tried to allocate 2.00 GiB``, on the CPU ``you tried to
allocate 8 bytes``, numpy ``Unable to allocate 7.28 TiB``."""

_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def outcome_of(error: BaseException, *, skipped: bool = False) -> tuple[Outcome, str]:
    """Outcome and reason for a benchmark that raised `error`."""
    if isinstance(error, Unsupported):
        return "unsupported", _noted_text(error)
    if skipped:
        return "skipped", _noted_text(error)
    if (lost := lost_context(error)) is not None:
        return "crashed", crash_reason(error, lost)
    if (allocation := failed_allocation(error)) is not None:
        return "oom", f"{_amounts(error_text(allocation))}: {_typed_text(error)}"
    if isinstance(error, UsageProblem):  # its text says what to do
        return "failed" if isinstance(error, Misuse) else "misconfigured", error_text(error)
    return "failed", _typed_text(error)


def crash_reason(error: BaseException, lost: BaseException) -> str:
    """Reason of a benchmark that raised `error`, since the context is lost as `lost` says."""
    consequence = "" if lost is error else f"; raised as {_typed_text(error)}"
    return f"{lost_context_text(lost)}{consequence}"


def _typed_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {_noted_text(error)}".strip(": ")


def _noted_text(error: BaseException) -> str:
    """Message of `error`, with its notes (PEP 678) on the same line."""
    notes = [" ".join(note.split()) for note in getattr(error, "__notes__", ())]
    return " ".join((error_text(error), *(f"({note})" for note in notes)))


def release_frames(errors: Iterable[BaseException]) -> None:
    """Release local variables of the frames in the tracebacks of `errors`.

    Running frames are left alone. As memory is short, objects frozen by ``gc.freeze`` are collected
    too.
    """
    for error in with_causes(errors):
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = None
    clear_last_exception()
    gc.unfreeze()
    gc.collect()
    torch = imported_torch()
    if torch is not None and not _is_cuda_unused(torch):
        # What a lost context refuses is told by the benchmark that lost it.
        with suppress(RuntimeError), failures_as_warnings("release the device's unused memory"):
            if torch.accelerator.is_available():
                torch.accelerator.empty_cache()


def _is_cuda_unused(torch: Any) -> bool:
    """Whether torch is for CUDA and this process has not started it.

    ``torch.accelerator.is_available`` would, for nothing: there is no memory to release.
    """
    return torch.backends.cuda.is_built() and not torch.cuda.is_initialized()


def clear_last_exception() -> None:
    """Clear the last exception, which pytest keeps until the next test."""
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        if hasattr(sys, name):
            delattr(sys, name)


def _amounts(message: str) -> str:
    """``out of memory, requested 2.00 GiB, peak 3.10 GiB``, as far as known."""
    parts = ["out of memory"]
    if match := _REQUESTED.search(message):
        power = [unit.lower() for unit in _UNITS].index(match["unit"].lower())
        parts.append(f"requested {byte_size(float(match['amount']) * 1024**power, digits=3)}")
    with suppress(RuntimeError):  # of a device that has failed altogether
        parts.append(f"peak {byte_size(_peak_bytes(), digits=3)}")
    return ", ".join(parts)


def _peak_bytes() -> float:
    """Peak of torch's CUDA allocator, else of this process."""
    torch = imported_torch()
    if torch is not None and torch.cuda.is_initialized():
        return float(torch.cuda.max_memory_allocated())
    return float(largest_resident_bytes())
