"""Flags of a measurement: what they are called, and which of them put a number in doubt.

A *doubt* says that the number may be wrong; a *note* says something of how it came about. No flag
changes a number, and nothing is dropped because of one. ``docs/reference/flags.md`` tells users
what raises each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

CONTENDED: Final = "contended"
THROTTLED: Final = "throttled"
UNSTEADY: Final = "unsteady"
DRIFTING: Final = "drifting"
NOT_CONVERGED: Final = "not_converged"
DEPENDENT: Final = "dependent"
SUSPENDED: Final = "suspended"
INSTRUMENTED: Final = "instrumented"
OUTLIERS: Final = "outliers"
STALLS: Final = "stalls"
FAST_CALLS: Final = "fast_calls"
DESCHEDULED: Final = "descheduled"
LAUNCH_BOUND: Final = "launch_bound"
PRECISION_UNUSED: Final = "precision_unused"
UNCHECKED: Final = "unchecked"
GROWING_MEMORY: Final = "growing_memory"
SINCE_START: Final = "peak_memory_since_start"
SKETCHED: Final = "sketched"
CONDENSED: Final = "condensed"
UNFINISHED: Final = "unfinished"

DOUBTS: Final = (
    CONTENDED,
    THROTTLED,
    UNSTEADY,
    DRIFTING,
    NOT_CONVERGED,
    DEPENDENT,
    SUSPENDED,
    INSTRUMENTED,
)
"""In the order in which a table names them."""

DISTURBANCES: Final = (CONTENDED, THROTTLED, DESCHEDULED, SUSPENDED)
"""What the machine did to a launch, whatever the launch measured: reasons to measure it again."""

NOTES: Final = (
    OUTLIERS,
    STALLS,
    FAST_CALLS,
    DESCHEDULED,
    LAUNCH_BOUND,
    PRECISION_UNUSED,
    UNCHECKED,
    GROWING_MEMORY,
    SINCE_START,
    SKETCHED,
    CONDENSED,
    UNFINISHED,
)


def doubts(flags: Iterable[str]) -> tuple[str, ...]:
    """Those of the `flags` that put a number in doubt, in the order of :data:`DOUBTS`."""
    raised = frozenset(flags)
    return tuple(name for name in DOUBTS if name in raised)


def notes(flags: Iterable[str]) -> tuple[str, ...]:
    """The others of the `flags`, each once and in the order in which they were raised."""
    return tuple(name for name in dict.fromkeys(flags) if name not in DOUBTS)


def disturbances(flags: Iterable[str]) -> tuple[str, ...]:
    """Those of the `flags` that tell of the machine, in the order of :data:`DISTURBANCES`."""
    raised = frozenset(flags)
    return tuple(name for name in DISTURBANCES if name in raised)
