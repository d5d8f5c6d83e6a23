"""How many CPU threads a rank computes with."""

from __future__ import annotations

import os


def threads_per_rank(
    local_ranks: int, *, configured: int | None = None, cores: int | None = None
) -> int:
    """The number `configured`, else this rank's share of the host's `cores`, at least one.

    `cores` defaults to those that this process may run on, which containers and ``taskset``
    restrict.
    """
    if configured is not None:
        return configured
    return max(1, (_usable_cores() if cores is None else cores) // local_ranks)


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
