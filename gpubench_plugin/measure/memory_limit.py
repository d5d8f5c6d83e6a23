"""Limit of this process's memory, so that an allocation fails before the system has to act."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_STATM: Final = Path("/proc/self/statm")
_HOST_SHARE: Final = 0.9
"""Part of the free memory that may be taken: MemAvailable is an estimate (proc_meminfo(5)), and
other processes grow meanwhile. Not measured."""


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
    pages = int(_STATM.read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + int(_HOST_SHARE * free_bytes)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        most = min(most, soft)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
