"""Outlier detection: durations far above the bulk, if not just a few."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

# Where the slow side of the bulk ends. One duration in twenty may be far out and leave it alone.
_BULK: Final = 0.9

# That end lies 1.28 standard deviations above the median of normal data, which puts the limit at
# 5.1. Flagged of normal noise: 1.1 % at most, at 12 durations (docs/evidence/outliers.md). The way
# from the median and not from the quartiles lets skewed noise reach further out.
_REACH: Final = 4.0

# A bulk narrower than this share of the median is taken as that wide: a quiet machine makes no
# outliers of differences that nobody acts on.
_LEAST_BULK: Final = 0.0128

# Fewer than this share move no mean that anybody would notice.
_SHARE: Final = 0.005


def has_outliers(durations_s: Sequence[float]) -> bool:
    """Whether more than 0.5 % of the durations are above the bulk's limit.

    The bulk reaches from the median to the 90th percentile; slower than the median by more than
    four times that is far out. Outliers are flagged, never dropped.
    """
    import numpy as np

    sorted_durations = sorted(durations_s)
    median_s = median(sorted_durations)
    with np.errstate(invalid="ignore"):  # infinite durations are refused where they are recorded
        end = float(np.quantile(sorted_durations, _BULK))
    bulk = max(end - median_s, _LEAST_BULK * median_s)
    limit = median_s + _REACH * bulk
    return sum(duration > limit for duration in sorted_durations) > _SHARE * len(sorted_durations)
