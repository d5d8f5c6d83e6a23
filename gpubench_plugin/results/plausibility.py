"""Plausibility checks of numbers read from files.

gpubench never writes impossible numbers: such a file was edited or merged by hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import chain


def implausible(metrics: Mapping[str, object], launches: Iterable[Mapping[str, object]]) -> str:
    """Reason a number of a run or its launches is impossible; empty if all are plausible."""
    all_values = chain(metrics.items(), *(launch.items() for launch in launches))
    for name, value in all_values:
        if isinstance(value, int | float) and not _possible(name, value):
            return f"{name} of {_short(value)} is impossible"
    return ""


def _possible(metric: str, value: float) -> bool:
    if metric.startswith("step_time_") and not metric.endswith("_ci_low_s"):
        return is_finite(value) and value > 0
    never_negative = metric.endswith("_per_s") or metric == "peak_memory_bytes"
    return is_finite(value) and (value >= 0 or not never_negative)


def is_finite(value: float) -> bool:
    """Whether `value` is finite, for integers of any size."""
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the largest float
        return False


def _short(value: float) -> str:
    try:
        return f"{value:.6g}"
    except OverflowError:
        return "beyond float range"
