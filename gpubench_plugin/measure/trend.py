"""Whether rounds become slower or faster as they go on.

The first third of them is compared with the last. A trend is a change of the median beyond what is
tolerated that noise does not explain: neither that of independent rounds nor that of rounds which
depend on their neighbours. ``docs/evidence/steadiness.md`` tells how often it is seen where there
is one, and where there is none.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Final

FEWEST: Final = 10
"""Fewer rounds have no trend that could be told from noise."""

_LEAST_PART: Final = 5

# Nearly every round of one part is slower than nearly every one of the other: no noise within a
# part does that, however its rounds depend on each other, but a wander that spans both parts…
_APART: Final = 0.95
# …nor do two parts of five differ in all rounds by chance in more than 1 % of cases.
_APART_ERRORS: Final = 2.5
# Parts that overlap differ by this many standard errors, widened by the dependence seen in them.
_ERRORS: Final = 3.5


def is_trending(rounds_s: Sequence[float], tolerance: float) -> bool:
    """Whether the last rounds differ from the first ones by more than `tolerance`, and plainly."""
    if len(rounds_s) < FEWEST:
        return False
    size = max(_LEAST_PART, len(rounds_s) // 3)
    first, last = rounds_s[:size], rounds_s[-size:]
    before, after = median(first), median(last)
    if abs(after - before) <= tolerance * before:
        return False
    slower = _share_above(first, last)
    # Source: H. B. Mann and D. R. Whitney, Annals of Mathematical Statistics 18 (1947), 50-60.
    errors = abs(slower - 0.5) / math.sqrt((2 * size + 1) / (12 * size * size))
    if max(slower, 1 - slower) >= _APART:
        return errors >= _APART_ERRORS
    return errors >= _ERRORS * math.sqrt(_dependence_time(first, last))


def _share_above(first: Sequence[float], last: Sequence[float]) -> float:
    """The share of pairs in which the round of `last` is the slower one; equal ones count half."""
    ordered = sorted(first)
    above = sum(bisect_left(ordered, value) + bisect_right(ordered, value) for value in last)
    return above / (2 * len(first) * len(last))


def _dependence_time(*parts: Sequence[float]) -> float:
    """The number of neighbouring rounds that count as one, as in an AR(1) process of their ranks.

    The first autocorrelation of n values comes out too small by (1 + 4φ) / n. Source: M. G.
    Kendall, Note on bias in the estimation of autocorrelation, Biometrika 41 (1954), 403-404.
    """
    size = len(parts[0])
    seen = fmean(_autocorrelation(part) for part in parts)
    corrected = min(max(seen + (1 + 4 * seen) / size, 0.0), 1 - 2 / size)
    return (1 + corrected) / (1 - corrected)


def _autocorrelation(values: Sequence[float]) -> float:
    """That of the ranks of neighbouring values."""
    ordered = sorted(values)
    middle = len(values)
    ranks = [bisect_left(ordered, v) + bisect_right(ordered, v) - middle for v in values]
    squares = sum(rank * rank for rank in ranks)
    return sum(a * b for a, b in pairwise(ranks)) / squares if squares else 0.0
