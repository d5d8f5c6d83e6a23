"""Flags of a measurement: what they are called, and which of them put a number in doubt.

A *doubt* says that the number may be wrong; a *note* says something of how it came about. No flag
changes a number, and nothing is dropped because of one. ``docs/reference/flags.md`` tells users
what raises each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

DOUBTS: Final[tuple[str, ...]] = (
    "contended",
    "throttled",
    "unsteady",
    "drifting",
    "not_converged",
    "dependent",
    "suspended",
    "instrumented",
)
"""In the order in which a table names them."""

STALLS: Final = "stalls"
"""Work over time is far below what the median call promises."""

NOTES: Final[tuple[str, ...]] = (
    "outliers",
    STALLS,
    "descheduled",
    "launch_bound",
    "precision_unused",
    "unchecked",
    "growing_memory",
    "peak_memory_since_start",
    "sketched",
    "condensed",
    "unfinished",
)


def doubts(flags: Iterable[str]) -> tuple[str, ...]:
    """Those of the `flags` that put a number in doubt, in the order of :data:`DOUBTS`."""
    raised = frozenset(flags)
    return tuple(name for name in DOUBTS if name in raised)


def notes(flags: Iterable[str]) -> tuple[str, ...]:
    """The others of the `flags`, each once and in the order in which they were raised."""
    return tuple(name for name in dict.fromkeys(flags) if name not in DOUBTS)
