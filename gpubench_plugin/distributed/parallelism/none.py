"""No parallelism."""

from __future__ import annotations

from gpubench_plugin.distributed.parallelism.base import Parallelism


class NoParallelism(Parallelism):
    """Every rank runs its own model, and nothing is exchanged."""

    name = "none"
