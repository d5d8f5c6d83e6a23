"""Trend of round times.

The first third of them is compared with the last. A trend is a change of the median beyond the
tolerance that noise does not explain, be the rounds independent or autocorrelated.
``docs/evidence/steadiness.md`` has the rates of detection and of false alarms.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Final

FEWEST: Final = 10
"""In fewer rounds a trend cannot be told from noise: two parts of five are compared."""

_LEAST_PART: Final = 5

# Share of pairs that are slower in one part: noise within a part does not reach it, however
# autocorrelated, but a drift that spans both parts does…
_APART: Final = 0.95
# …and so do two parts of five by chance in less than 1% of cases.
_APART_ERRORS: Final = 2.5
# Standard errors, widened by autocorrelation, between parts that overlap.
_ERRORS: Final = 3.5


def is_trending(rounds_s: Sequence[float], tolerance: float) -> bool:
    """Whether the last rounds differ significantly from the first by more than `tolerance`."""
    if len(rounds_s) < FEWEST:
        return False
    size = max(_LEAST_PART, len(rounds_s) // 3)
    first_rounds, last_rounds = rounds_s[:size], rounds_s[-size:]
    first_median, last_median = median(first_rounds), median(last_rounds)
    if abs(last_median - first_median) <= tolerance * first_median:
        return False
    slower_share = _share_above(first_rounds, last_rounds)
    # Source: H. B. Mann and D. R. Whitney, Annals of Mathematical Statistics 18 (1947), 50-60.
    errors = abs(slower_share - 0.5) / math.sqrt((2 * size + 1) / (12 * size * size))
    if max(slower_share, 1 - slower_share) >= _APART:
        return errors >= _APART_ERRORS
    return errors >= _ERRORS * math.sqrt(_correlation_time(first_rounds, last_rounds))


def _share_above(first_rounds: Sequence[float], last_rounds: Sequence[float]) -> float:
    """Share of pairs whose round of `last_rounds` is slower; ties count half."""
    sorted_first = sorted(first_rounds)
    count = sum(
        bisect_left(sorted_first, value) + bisect_right(sorted_first, value)
        for value in last_rounds
    )
    return count / (2 * len(first_rounds) * len(last_rounds))


def _correlation_time(*sections: Sequence[float]) -> float:
    """Correlation time in rounds, from an AR(1) model of their ranks.

    The first autocorrelation of n values comes out too small by (1 + 4φ) / n. Source: M. G.
    Kendall, Note on bias in the estimation of autocorrelation, Biometrika 41 (1954), 403-404.
    """
    size = len(sections[0])
    phi = fmean(_autocorrelation(part) for part in sections)
    phi = min(max(phi + (1 + 4 * phi) / size, 0.0), 1 - 2 / size)
    return (1 + phi) / (1 - phi)


def _autocorrelation(values: Sequence[float]) -> float:
    """Lag-1 autocorrelation of the ranks of the values."""
    sorted_values = sorted(values)
    offset = len(values)
    ranks = [
        bisect_left(sorted_values, v) + bisect_right(sorted_values, v) - offset for v in values
    ]
    squares = sum(rank * rank for rank in ranks)
    return sum(a * b for a, b in pairwise(ranks)) / squares if squares else 0.0
