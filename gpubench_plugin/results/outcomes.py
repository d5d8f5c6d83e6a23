"""What kind of ending an exception is, and how to let go of the memory that one has kept alive."""

from __future__ import annotations

import gc
import re
import resource
import sys
import traceback
from collections.abc import Iterable, Iterator
from typing import Final

from gpubench_plugin.environment import byte_size
from gpubench_plugin.errors import Unsupported, text_of
from gpubench_plugin.records import Outcome

_CPU_ALLOCATOR: Final = re.compile(
    r"DefaultCPUAllocator: (can't allocate memory|not enough memory)"
)
"""torch has no class of its own for a failed allocation on the CPU (c10/core/CPUAllocator.cpp)."""

_REQUESTED: Final = re.compile(
    r"(?:tried|unable) to allocate (?P<amount>[\d.]+) (?P<unit>bytes|[KMGTP]iB)", re.IGNORECASE
)
"""torch on CUDA says ``Tried to allocate 2.00 GiB``, on the CPU ``you tried to allocate 8 bytes``,
numpy ``Unable to allocate 7.28 TiB``."""

_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def kind_of(error: BaseException, *, skipped: bool = False) -> tuple[Outcome, str]:
    """The outcome of a benchmark that ended with `error`, and the reason for the record."""
    if isinstance(error, Unsupported):
        return "unsupported", text_of(error)
    if skipped:
        return "skipped", text_of(error)
    reason = f"{type(error).__name__}: {text_of(error)}".strip(": ")
    if is_out_of_memory(error):
        return "oom", f"{_amounts(text_of(error))}: {reason}"
    return "failed", reason


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on an accelerator or on the host. Imports no torch."""
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (
        torch is not None and isinstance(error, torch.OutOfMemoryError)
    ):
        return True
    return isinstance(error, RuntimeError) and _CPU_ALLOCATOR.search(text_of(error)) is not None


def free(errors: Iterable[BaseException]) -> None:
    """Free what `errors` keep alive: the local variables of the frames they went through.

    Frames that are still running are left alone. Memory is short: also what was left out of
    collections so far is looked through.
    """
    for one in _chain(errors):
        traceback.clear_frames(one.__traceback__)
        one.__traceback__ = None
    forget_last()
    gc.unfreeze()
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.accelerator.is_available():
        torch.accelerator.empty_cache()


def forget_last() -> None:
    """Let go of the last error of a test: pytest itself keeps it until the next test is called."""
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        if hasattr(sys, name):
            delattr(sys, name)


def _chain(errors: Iterable[BaseException]) -> Iterator[BaseException]:
    """The `errors` and those that led to them, each once."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [*errors]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        waiting += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions
        yield one


def _amounts(message: str) -> str:
    """``out of memory, requested 2.00 GiB, peak 3.10 GiB``, as far as it is known."""
    said = ["out of memory"]
    if found := _REQUESTED.search(message):
        power = [unit.lower() for unit in _UNITS].index(found["unit"].lower())
        said.append(f"requested {byte_size(float(found['amount']) * 1024**power, digits=3)}")
    said.append(f"peak {byte_size(_peak_bytes(), digits=3)}")
    return ", ".join(said)


def _peak_bytes() -> float:
    """The most that torch's allocator had handed out on CUDA, else this process' resident peak."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return float(torch.cuda.max_memory_allocated())
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(resident) if sys.platform == "darwin" else resident * 1024.0
