"""Process state that benchmarks must not leak into each other. Imports no torch for a CPU."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import re
import resource
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

from gpubench_plugin.core.errors import Misuse
from gpubench_plugin.environment.device_errors import failures_as_warnings
from gpubench_plugin.system.child_process import child_pids

if TYPE_CHECKING:
    import torch

_CURRENT_TEST: Final = "PYTEST_CURRENT_TEST"
"""Phase of the running test, which pytest changes by itself."""
_LIBRARIES: Final = re.compile(
    r"(?s)gpubench-|.*(\(_read_thread\)|torch/_inductor|resource_tracker)"
)
"""Names of threads and command lines of processes that are gpubench's, or a library's own."""


@contextmanager
def process_restored() -> Iterator[None]:
    """Restore the process's state after the body, also on exceptions.

    That is: the garbage collector, the random generators of Python and numpy, the working
    directory, and environment variables that were changed or removed. Added ones stay: libraries
    set some at their first use and read them again, torch's compiler the path of its cache.

    Raises:
        Misuse: the body has removed the working directory.
    """
    gc.collect()
    with ExitStack() as stack:  # last in, first out
        stack.callback(gc.collect)
        stack.callback(gc.enable if gc.isenabled() else gc.disable)
        stack.callback(random.setstate, random.getstate())
        if (numpy := sys.modules.get("numpy")) is not None:
            stack.callback(numpy.random.set_state, numpy.random.get_state())
        stack.callback(_restore_environment, dict(os.environ))
        with suppress(OSError):  # an earlier test removed it
            stack.callback(_restore_directory, Path.cwd())
        yield


def _restore_directory(directory: Path) -> None:
    """Go back to the `directory`, or else to the nearest folder around it that still exists.

    Raises:
        Misuse: the directory is gone.
    """
    if not directory.is_dir():
        os.chdir(next(folder for folder in directory.parents if folder.is_dir()))
        raise Misuse(f"the benchmark removed its working directory, {directory}")
    os.chdir(directory)


def _restore_environment(old_environment: Mapping[str, str]) -> None:
    for name, value in old_environment.items():
        if name != _CURRENT_TEST and os.environ.get(name) != value:
            os.environ[name] = value


def release_memory(device: torch.device) -> None:
    """Release unused memory to the device, or on a CPU to the system.

    Else the next peak would include it: glibc keeps freed memory resident until malloc_trim(3),
    torch's allocator keeps it reserved. What the device refuses is a warning.

    Raises:
        RuntimeError: the device's context is lost.
    """
    gc.collect()
    if device.type != "cpu":
        import torch

        with failures_as_warnings(f"release the unused memory of {device}"):
            torch.get_device_module(device).empty_cache()
    elif sys.platform == "linux":
        with suppress(OSError, AttributeError):  # other C libraries lack it
            ctypes.CDLL(None).malloc_trim(0)


_HOST_SHARE: Final = 0.9
"""Part of the free memory that may be taken: MemAvailable is an estimate (proc_meminfo(5)), and
other processes grow meanwhile."""


@contextmanager
def host_memory_limited(free_bytes: int | None) -> Iterator[None]:
    """Let this process's allocations fail once they take nine tenths of `free_bytes`.

    Linux promises more memory than there is, and ends a process that uses it. The limit is that of
    the address space, RLIMIT_AS; a lower one stays. Without effect on other systems, or where the
    free memory is unknown, None.
    """
    if free_bytes is None or sys.platform != "linux":
        yield
        return
    most = psutil.Process().memory_info().vms + int(_HOST_SHARE * free_bytes)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        most = min(most, soft)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def running_tasks() -> dict[object, str]:
    """Python's threads, and ids of child processes (Linux), that run now; with what to call them.

    Threads may share a name.
    """
    tasks: dict[Any, Any] = {t: (f"thread {t.name}", t.name) for t in threading.enumerate()}
    for pid in child_pids():
        with suppress(OSError):  # it has just ended; a command that has ended is empty
            tasks[pid] = f"process {pid}", Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    return {key: text for key, (text, name) in tasks.items() if name and not _LIBRARIES.match(name)}
