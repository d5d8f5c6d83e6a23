"""Plausibility checks of numbers read from files.

Nobody but us writes these files, and we write none such: one was changed, or joined from two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import chain


def implausible(metrics: Mapping[str, object], launches: Iterable[Mapping[str, object]]) -> str:
    """Why values of a run or its launches are impossible; empty if they are plausible.

    What is no number is not spoken of.
    """
    all_values = chain(metrics.items(), *(launch.items() for launch in launches))
    for name, value in all_values:
        if isinstance(value, int | float) and not _possible(name, value):
            return f"{name} of {_short(value)} is impossible"
    return ""


def _possible(metric: str, value: float) -> bool:
    if metric.startswith("step_time_") and not metric.endswith("_ci_low_s"):
        return _finite(value) and value > 0
    never_negative = metric.endswith("_per_s") or metric == "peak_memory_bytes"
    return _finite(value) and (value >= 0 or not never_negative)


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number of hundreds of digits
        return False


def _short(value: float) -> str:
    try:
        return f"{value:.6g}"
    except OverflowError:
        return "beyond float range"
