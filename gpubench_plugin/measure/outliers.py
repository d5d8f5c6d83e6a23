"""Samples that do not belong to the rest: flagged, never dropped."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Leys, Ley, Klein, Bernard, Licata: Detecting outliers: do not use standard deviation around the
# mean, use absolute deviation around the median. Journal of Experimental Social Psychology 49
# (2013) 764-766: outside median ± 3 deviations, a deviation being 1.4826 times the median absolute
# one, which makes it the standard deviation of normal data.
_DEVIATIONS = 3.0
_NORMAL = 1.4826

# Spread below this share of the median is taken as that: a quiet machine makes no outliers of
# differences that nobody acts on.
_LEAST_SPREAD = 0.01

# Of normal data 0.3 % lie outside: fewer than this share says nothing.
_SHARE = 0.01


def has_outliers(durations_s: Sequence[float]) -> bool:
    """Whether more than 1 % of the durations lie outside median ± 3 · 1.4826 · MAD."""
    middle = median(durations_s)
    distances = [abs(duration - middle) for duration in durations_s]
    limit = _DEVIATIONS * max(_NORMAL * median(distances), _LEAST_SPREAD * middle)
    return sum(distance > limit for distance in distances) > _SHARE * len(durations_s)
