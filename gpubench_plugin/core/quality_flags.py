"""Flags of a measurement, and which of them make a number doubtful.

A *doubt* means that the number may be wrong; a *note* tells how it was measured. No flag changes a
number, and nothing is dropped because of one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

CONTENDED: Final = "contended"
THROTTLED: Final = "throttled"
UNSTEADY: Final = "unsteady"
DRIFTING: Final = "drifting"
DEPENDENT: Final = "dependent"
SUSPENDED: Final = "suspended"
INSTRUMENTED: Final = "instrumented"
CUT_SHORT: Final = "cut_short"
CHANGED_WORK: Final = "changed_work"
OVERSUBSCRIBED: Final = "oversubscribed"
LEFT_RUNNING: Final = "left_running"
OUTLIERS: Final = "outliers"
STALLS: Final = "stalls"
FAST_CALLS: Final = "fast_calls"
DESCHEDULED: Final = "descheduled"
LAUNCH_BOUND: Final = "launch_bound"
ELSEWHERE: Final = "elsewhere"
UNCALIBRATED: Final = "uncalibrated"
TIMER_OVERHEAD: Final = "timer_overhead"
PRECISION_UNUSED: Final = "precision_unused"
UNCHECKED: Final = "unchecked"
GROWING_MEMORY: Final = "growing_memory"
UNCOLLECTED: Final = "uncollected"
SINCE_START: Final = "peak_memory_since_start"
SAMPLED: Final = "sampled"
CONDENSED: Final = "condensed"
UNFINISHED: Final = "unfinished"

MACHINE_FLAGS: Final = (CONTENDED, THROTTLED, DESCHEDULED, SUSPENDED)
"""Disturbances by the machine, for which a launch is measured again."""

MEANINGS: Final[Mapping[str, str]] = {
    CONTENDED: "the measuring threads waited for a CPU for more than 5% of the timed blocks",
    THROTTLED: "temperature or power slowed the GPU down for more than 5% of the timed calls",
    UNSTEADY: "the warm-up reached its limit while the step became slower or faster",
    DRIFTING: "the rounds show a trend: the step became slower or faster",
    DEPENDENT: "too few rounds are independent of their neighbours to tell an interval",
    SUSPENDED: "the process was stopped, frozen or suspended during the measurement",
    INSTRUMENTED: "a debugger, tracer or Python debug mode was active",
    CUT_SHORT: "the time limit came before all rounds of the baseline: there are fewer",
    CHANGED_WORK: "a step after the timing did other work than one before it",
    OVERSUBSCRIBED: "the benchmark's own threads, ranks and children were more than the free CPUs",
    LEFT_RUNNING: "threads or processes that the calls started ran on after the last one",
    OUTLIERS: "more than 0.5% of the durations are far above the median",
    STALLS: "a few slow calls dominate: throughput is 10% below what the median implies",
    FAST_CALLS: "many calls are far below the median: throughput is 10% above what it implies",
    DESCHEDULED: "the measuring threads waited for others for 2% to 5% of the timed blocks",
    LAUNCH_BOUND: "the GPU waited for Python",
    ELSEWHERE: "other CUDA streams worked on after the step's: its times include their work",
    UNCALIBRATED: "no calls were spent on calibrating the clock: short blocks may be too long",
    TIMER_OVERHEAD: "calls too short to be timed singly: the timer's own time is in them",
    PRECISION_UNUSED: "nothing was computed in the precision named by the id",
    UNCHECKED: "not compared with the fp32 reference, or variants not with each other",
    GROWING_MEMORY: "memory grew in every quarter of the timed calls: a leak",
    UNCOLLECTED: "reference cycles held device memory: the peak includes garbage",
    SINCE_START: "the process's memory peak could not be reset: it is that since its start",
    SAMPLED: "too many durations to store; percentiles are those of a sample",
    CONDENSED: "a rank had more samples, flags or facts than its report can hold",
    UNFINISHED: "the run never finished: it was killed, or is still running",
}
"""Meaning of each flag in a line; ``docs/reference/flags.md`` has the exact conditions."""

EXPLANATIONS: Final[Mapping[str, str]] = {
    CONTENDED: "other processes used the CPU; close them or repeat",
    THROTTLED: "heat or power slowed the GPU; cool it or lock clocks",
    UNSTEADY: "not steady after warm-up; raise measure.warmup_max_s",
    DRIFTING: "the step became slower or faster; find what grows",
    DEPENDENT: "no interval: long phases; measure longer: --measure.profile=full",
    SUSPENDED: "the process was stopped in between; repeat",
    INSTRUMENTED: "a debugger or tracer was on; measure without it",
    CHANGED_WORK: "other work after the timing; make calls alike",
}
"""What a doubt means and what to do about it, in a line of the terminal."""

FEWER_THREADS: Final = "pytest --distributed.threads=1, or close programs"
"""What to do where several threads waited for a CPU: a step's last thread delays all others."""

DOUBTFUL_FLAGS: Final = tuple(EXPLANATIONS)
"""Doubts, in the order of tables."""


def explanation(doubt: str, flags: Collection[str], settings: Mapping[str, Any] = {}) -> str:
    """What the `doubt` about a number with those `flags` means, and what to do about it.

    `settings` are those of the benchmark, by dot key.
    """
    if doubt == CONTENDED and OVERSUBSCRIBED in flags and settings.get("distributed.threads") != 1:
        return FEWER_THREADS
    return EXPLANATIONS[doubt]


def doubtful_flags(flags: Iterable[str]) -> tuple[str, ...]:
    """The `flags` that make a number doubtful, in the order of :data:`DOUBTFUL_FLAGS`."""
    flag_set = frozenset(flags)
    return tuple(name for name in DOUBTFUL_FLAGS if name in flag_set)


def other_flags(flags: Iterable[str]) -> tuple[str, ...]:
    """The other `flags`, unique, in the order raised."""
    return tuple(name for name in dict.fromkeys(flags) if name not in DOUBTFUL_FLAGS)
