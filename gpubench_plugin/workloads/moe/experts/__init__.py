"""Implementations of a rank's experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpubench_plugin.workloads.moe.experts.base import Sequential
from gpubench_plugin.workloads.moe.experts.grouped import Grouped, TEGrouped

if TYPE_CHECKING:
    from gpubench_plugin.workloads.moe.experts.base import Experts

KINDS: Final[dict[str, type[Experts]]] = {
    "sequential": Sequential,
    "grouped": Grouped,
    "te-grouped": TEGrouped,
}
"""By value of ``moe.expert_kind``."""
