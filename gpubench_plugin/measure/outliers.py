"""Outlier detection: durations far above the bulk, if not just a few."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

# Quantile at the slow end of the bulk: one duration in twenty may be an outlier without moving it.
_BULK: Final = 0.9

# Widths of the bulk from the median to the limit: the bulk of normal data ends 1.28 standard
# deviations above the median, which puts the limit at 5.1. Of measurements with normal noise 1.1%
# at most are flagged, at 12 durations (docs/evidence/outliers.md).
_REACH: Final = 4.0

# Minimum width of the bulk as a share of the median: four times that is 5%, so that a quiet
# machine has no outliers among differences too small to act on.
_LEAST_BULK: Final = 0.0128

# Share of outliers that is flagged: fewer hardly move the mean.
_SHARE: Final = 0.005


def has_outliers(durations_s: Sequence[float]) -> bool:
    """Whether more than 0.5% of the durations are outliers; they are flagged, never dropped.

    An outlier is slower than the median by more than four times what the 90th percentile is.
    """
    import numpy as np

    sorted_durations = sorted(durations_s)
    median_s = median(sorted_durations)
    with np.errstate(invalid="ignore"):  # the recording refuses infinite durations
        end = float(np.quantile(sorted_durations, _BULK))
    bulk = max(end - median_s, _LEAST_BULK * median_s)
    limit = median_s + _REACH * bulk
    return sum(duration > limit for duration in sorted_durations) > _SHARE * len(sorted_durations)
