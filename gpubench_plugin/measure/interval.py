"""The confidence interval of a median, from the order of the values alone.

No distribution is assumed: the number of values below the true median is binomial with
probability ½, so two order statistics enclose it with a known probability. Source: H. A. David
and H. N. Nagaraja, Order Statistics, 3rd edition (2003), section 7.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Up to here the central binomial probability is computed in exact integers; above, where they
# grow too long, by lgamma.
_EXACT_UP_TO = 1000


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A median with the two values that enclose it, all in the unit of the values."""

    median: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the interval relative to the median: (high - low) / 2 / median."""
        return (self.high - self.low) / 2 / self.median


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """The narrowest symmetric interval of order statistics that covers at least `confidence`.

    None where the values are too few to reach it (fewer than six at 95 %).
    """
    ranks = interval_ranks(len(values), confidence)
    if ranks is None:
        return None
    ordered = sorted(values)
    low, high = ranks
    return Interval(median=median(ordered), low=ordered[low - 1], high=ordered[high - 1])


@lru_cache(maxsize=1024)
def interval_ranks(count: int, confidence: float) -> tuple[int, int] | None:
    """The ranks, counted from one, of the interval's ends among `count` ordered values.

    The d-th smallest and d-th largest cover the median with probability
    P(d ≤ B ≤ count - d) for a binomial B(count, ½). Starting from the middle, where the mass is,
    the interval widens until that suffices: (2, 9) for 10 values at 95 %, (6, 15) for 20.
    """
    low = count // 2
    if low == 0:
        return None
    mass = _central_mass(count)
    covered = mass if count % 2 == 0 else 2 * mass
    while covered < confidence:
        if low == 1:
            return None
        mass *= low / (count - low + 1)
        low -= 1
        covered += 2 * mass
    return low, count - low + 1


def _central_mass(count: int) -> float:
    """P(B = count // 2) for a binomial B(count, ½)."""
    middle = count // 2
    if count <= _EXACT_UP_TO:
        return math.comb(count, middle) / (1 << count)
    log_ways = math.lgamma(count + 1) - math.lgamma(middle + 1) - math.lgamma(count - middle + 1)
    return math.exp(log_ways - count * math.log(2))
