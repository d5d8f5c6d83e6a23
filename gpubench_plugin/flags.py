"""Flags of a measurement, and which of them make a number doubtful.

A *doubt* says that the number may be wrong; a *note* says something of how it came about. No flag
changes a number, and nothing is dropped because of one. ``docs/reference/flags.md`` tells users
what raises each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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

DOUBTFUL_FLAGS: Final = (
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

MACHINE_FLAGS: Final = (CONTENDED, THROTTLED, DESCHEDULED, SUSPENDED)
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


MEANINGS: Final[Mapping[str, str]] = {
    CONTENDED: "measuring threads waited for a processor for more than 5 % of the timed blocks",
    THROTTLED: "the GPU lowered its clocks for heat or power",
    UNSTEADY: "the warm-up ended by its limits, before the step was steady",
    DRIFTING: "the rounds have a trend: slower or faster while it was measured",
    NOT_CONVERGED: "time or rounds ran out before the median was known well enough",
    DEPENDENT: "neighbouring rounds resemble each other: few of them stand for themselves",
    SUSPENDED: "the process was stopped, frozen or asleep while it was measured",
    INSTRUMENTED: "a debugger, a tracer or a debug mode of Python took part",
    OUTLIERS: "more than 0.5 % of the durations lie far above the median",
    STALLS: "a few calls take most of the time: work over time is 10 % below the median's promise",
    FAST_CALLS: "many calls take far less: work over time is 10 % above the median's promise",
    DESCHEDULED: "on one thread, less than 98 % of the wall time was processor time",
    LAUNCH_BOUND: "the GPU waited for Python",
    PRECISION_UNUSED: "nothing was computed in the precision that the id names",
    UNCHECKED: "nothing was compared with the fp32 reference",
    GROWING_MEMORY: "memory grew through all quarters of the timed calls: a leak",
    SINCE_START: "the process' peak of memory is that since its start",
    SKETCHED: "too many durations to keep; percentiles are a sketch's (pytest-gpubench[sketch])",
    CONDENSED: "a rank had more samples, flags or facts than it sends",
    UNFINISHED: "the run has no end and no record of it: it was killed, or still runs",
}
"""What each flag says, in a line; ``docs/reference/flags.md`` says when exactly it is raised."""


def doubtful_flags(flags: Iterable[str]) -> tuple[str, ...]:
    """The `flags` that make a number doubtful, in the order of :data:`DOUBTFUL_FLAGS`."""
    flag_set = frozenset(flags)
    return tuple(name for name in DOUBTFUL_FLAGS if name in flag_set)


def other_flags(flags: Iterable[str]) -> tuple[str, ...]:
    """The other `flags`, unique, in the order raised."""
    return tuple(name for name in dict.fromkeys(flags) if name not in DOUBTFUL_FLAGS)


def machine_flags(flags: Iterable[str]) -> tuple[str, ...]:
    """The `flags` caused by the machine, in the order of :data:`MACHINE_FLAGS`."""
    flag_set = frozenset(flags)
    return tuple(name for name in MACHINE_FLAGS if name in flag_set)
