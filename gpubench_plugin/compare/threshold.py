"""Judging by a threshold: one value against one, for those who want it. Not statistical."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from gpubench_plugin.compare.plain import at_once, by_limit, exact, without_variance
from gpubench_plugin.compare.series import Series
from gpubench_plugin.verdicts import Verdict

LABEL = "threshold, not statistical"


def judge_threshold(series: Sequence[Series]) -> list[Verdict]:
    """One verdict per series, in order: the median of the head against that of the level."""
    return [_judged_by_threshold(one) for one in series]


def _judged_by_threshold(series: Series) -> Verdict:
    if found := at_once(series):
        return found
    if without_variance(series):
        return exact(series, launches=len(series.base))
    return by_limit(series, median(series.level), median(series.head), "threshold", LABEL, 1)
