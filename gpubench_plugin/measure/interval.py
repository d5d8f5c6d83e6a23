"""Confidence interval of a median from order statistics, corrected for autocorrelation.

No distribution is assumed. Of independent values the number below the true median is binomial with
probability ½, so two order statistics enclose it with a known probability. Source: H. A. David
and H. N. Nagaraja, Order Statistics, 3rd edition (2003), section 7.1.

Rounds of one process are seldom independent: what slows one slows its neighbours. The effective
sample size is then smaller, and the interval wider. It is estimated twice and the smaller taken: by
the initial monotone sequence of the autocorrelations (C. J. Geyer, Practical Markov chain Monte
Carlo, Statistical Science 7 (1992), 473-483) and, if they are significant, by batch means.
``docs/evidence/interval.md`` has the coverage, with checks during the measurement.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, median
from typing import Any, Final, Literal

from gpubench_plugin.core.student import expanded_t

# Central binomial probabilities are exact integers up to this count, and lgamma's above, where the
# integers grow too long.
_EXACT_UP_TO = 1000

FEWEST_TO_JUDGE: Final = 100
"""Fewer values can hide dependence: intervals of an AR(1) process with φ = 0.9 cover its median in
86% of cases for 50 values, and in 94% for 100 (``docs/evidence/rate_interval.md``)."""

# Effective sample size below which measuring goes on, however narrow the interval: one long mode
# alone looks quiet. Of modes that last for 10 rounds 10.0% of measurements in `quick` end narrow
# and wrong; with a bound of 20, 10.5% (docs/evidence/interval.md).
_ENOUGH: Final = 50

# Half-widths that the middle 80% of too few values must span to hide dependence. Those of normal
# noise, whose half-width at the strict level of a check is 1.25 · 2.73 σ/√n, span 2.56 σ: 7.5
# half-widths for 100 values, less for fewer. Of modes of 1x and 3x that last for 5 rounds 2.5% of
# measurements end narrow and wrong; without this, 9% (docs/evidence/interval.md).
_WIDE: Final = 10

# Levels on either side of the median at which the share of values below is tested: two modes have
# their dependence between them, not at the median of the more frequent one.
_LEVELS: Final = 8

# Standard errors, 1/√n each, of a significant lag-1 autocorrelation: P(Z > 2.5) = 0.6% of
# independent values reach it.
_SIGNIFICANT: Final = 2.5

# Fewest batch means whose variance is used: more would leave out the long batches.
_FEWEST_BATCHES: Final = 5

# Longer series are averaged over neighbours first, which bounds time and memory of the transform.
_MOST_SERIES: Final = 4096

# Shorter series are taken as independent: too short to estimate an autocorrelation.
_FEWEST_SERIES: Final = 20


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A median with its confidence bounds, in the unit of the values.

    `effective_count` is the effective sample size; None below :data:`FEWEST_TO_JUDGE` values, which
    are taken as independent unless they show otherwise.
    """

    median: float
    low: float
    high: float
    effective_count: float | None

    @property
    def half_width(self) -> float:
        """Relative half-width: (high - low) / 2 / median."""
        return (self.high - self.low) / 2 / self.median


@dataclass(frozen=True, kw_only=True)
class _Level:
    """Variation of the share of values below one level.

    `offset` is the level's distance from the median, as a share of all values; `spread` the
    standard deviation of being below, relative to that at the median; `tau` the integrated
    autocorrelation time; `batches` the variances of batch means, each relative to that of
    independent values, with the number of batches.
    """

    offset: float
    spread: float
    tau: float
    batches: tuple[tuple[float, int], ...]

    def widening(self, count: int, z: float) -> float:
        """Factor by which autocorrelation widens the interval of `count` values."""
        effective_count = count / self.tau
        student = (
            math.sqrt(self.tau) * expanded_t(effective_count - 1, z) / expanded_t(count - 1, z)
        )
        by_batches = (
            math.sqrt(variance) * expanded_t(batches - 1, z) / z
            for variance, batches in self.batches
        )
        return self.spread * max(student, *by_batches, 0.0)


class Autocorrelation:
    """Autocorrelation of `values`, in the order in which they were timed."""

    def __init__(self, values: Sequence[float]) -> None:
        self.count = len(values)
        self._sorted = sorted(values)
        self._levels: tuple[_Level, ...] = ()
        self._significant = False
        if self.count >= _FEWEST_SERIES and self._sorted[0] < self._sorted[-1]:
            self._significant, self._levels = _analyse(values, self._sorted)

    @property
    def is_strong(self) -> bool:
        """Whether the effective sample size, at any level, is too small to stop measuring."""
        taus = (level.tau for level in self._levels)
        return self._significant and self.count / max(taus) < _ENOUGH

    def hides_interval(self, confidence: float) -> bool:
        """Whether independent values would have an interval, and these have none."""
        is_enough = interval_ranks(self.count, confidence) is not None
        return is_enough and self.interval(confidence) is None

    def may_be_undetected(self, half_width: float) -> bool:
        """Whether values too few to detect dependence spread too widely for the `half_width`.

        They may be of two modes of unknown length. `half_width` is relative to the median.
        """
        if not 1 <= self.count < FEWEST_TO_JUDGE:
            return False
        low, high = (self._sorted[int(share * (self.count - 1))] for share in (0.1, 0.9))
        return high - low > _WIDE * half_width * median(self._sorted)

    def interval(self, confidence: float) -> Interval | None:
        """Confidence interval of the median; None with too few values.

        The effective sample must have one by itself: six independent values at 95%.
        """
        ranks_below, ranks_above, effective_count = self._rank_distances(confidence)
        if math.isinf(ranks_below) or interval_ranks(int(effective_count), confidence) is None:
            return None
        middle_rank = (self.count + 1) / 2
        low, high = math.floor(middle_rank - ranks_below), math.ceil(middle_rank + ranks_above)
        if low < 1 or high > self.count:
            return None
        is_judgeable = self.count >= FEWEST_TO_JUDGE
        return Interval(
            median=median(self._sorted),
            low=self._sorted[low - 1],
            high=self._sorted[high - 1],
            effective_count=effective_count if is_judgeable else None,
        )

    def _rank_distances(self, confidence: float) -> tuple[float, float, float]:
        """Rank distances below and above the median, and the effective sample size.

        Each level widens the interval up to itself, as far as its own share of values below varies.
        """
        ranks = interval_ranks(self.count, confidence)
        if ranks is None:
            return math.inf, math.inf, float(self.count)
        independent_distance = (self.count + 1) / 2 - ranks[0]
        if not self._levels:
            return independent_distance, independent_distance, float(self.count)
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        middle_level = self._levels[0]
        widening = max(1.0, middle_level.widening(self.count, z))
        ranks_below = ranks_above = independent_distance * widening
        longest_time = middle_level.tau
        for level in self._levels[1:]:
            own_distance = independent_distance * level.widening(self.count, z)
            distance = min(abs(level.offset) * self.count, own_distance)
            if own_distance > distance:
                longest_time = max(longest_time, level.tau)
            if level.offset < 0:
                ranks_below = max(ranks_below, distance)
            else:
                ranks_above = max(ranks_above, distance)
        return ranks_below, ranks_above, self.count / longest_time


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Interval that covers the median with at least `confidence`; None with too few values.

    `values` are in the order in which they were timed; at 95% six independent ones are needed.
    """
    return Autocorrelation(values).interval(confidence)


@lru_cache(maxsize=1024)
def interval_ranks(count: int, confidence: float) -> tuple[int, int] | None:
    """Ranks (from one) of the interval's ends among `count` sorted values.

    The d-th smallest and d-th largest cover the median with probability P(d ≤ B ≤ count - d) for a
    binomial B(count, ½). The interval widens from the middle until that suffices: (2, 9) for 10
    values at 95%, (6, 15) for 20.
    """
    low = count // 2
    if low == 0:
        return None
    mass = _central_mass(count)
    coverage = mass if count % 2 == 0 else 2 * mass
    while coverage < confidence:
        if low == 1:
            return None
        mass *= low / (count - low + 1)
        low -= 1
        coverage += 2 * mass
    return low, count - low + 1


def _analyse(
    values: Sequence[float], sorted_values: list[float]
) -> tuple[bool, tuple[_Level, ...]]:
    """Whether the values are clearly autocorrelated, and their variation at each level."""
    import numpy as np

    series, count = np.asarray(values, dtype=np.float64), len(sorted_values)
    rank_tau, rank_lag = _correlation_time(ranks_among(sorted_values, series) - count)
    offsets = [side * at / (_LEVELS + 1) / 2 for at in range(1, _LEVELS + 1) for side in (-1, 1)]
    indicator, tau, first_lag = _level_indicator(series, median(sorted_values))
    significant = max(first_lag, rank_lag) > _SIGNIFICANT / math.sqrt(min(count, _MOST_SERIES))
    levels = [(0.0, indicator, tau)]
    for offset in offsets:
        at = int((0.5 + offset) * count)
        if 1 <= at < count - 1:
            indicator, tau, _ = _level_indicator(series, sorted_values[at])
            levels.append((offset, indicator, tau))
    return significant, tuple(
        _Level(
            offset=offset,
            spread=min(1.0, 2 * float(indicator.std())),
            tau=max(1.0, tau, rank_tau),
            batches=tuple(_batch_variances(indicator)) if significant else (),
        )
        for offset, indicator, tau in levels
    )


def ranks_among(sorted_values: Sequence[float], values: Any) -> Any:
    """Twice the rank of each of `values` among others, from zero; ties count half."""
    import numpy as np

    sides: tuple[Literal["left", "right"], ...] = ("left", "right")
    return sum(np.searchsorted(sorted_values, values, side).astype(np.float64) for side in sides)


def _level_indicator(series: Any, level: float) -> tuple[Any, float, float]:
    """Centred indicator of values above `level` (½: equal), its correlation time and first lag."""
    indicator = (series > level) + 0.5 * (series == level)
    centred = indicator - indicator.mean()
    return (centred, *_correlation_time(centred))


def _correlation_time(centred: Any) -> tuple[float, float]:
    """Integrated autocorrelation time, at least 1, and lag-1 autocorrelation.

    Geyer's initial monotone sequence: sums of two neighbouring autocorrelations while they are
    positive, each no larger than the one before.
    """
    import numpy as np

    variance = float(np.mean(centred * centred))
    if variance <= 0:
        return 1.0, 0.0
    width = -(-len(centred) // _MOST_SERIES)
    batch_means = _batch_means(centred, width)
    size = len(batch_means)
    spectrum = np.fft.rfft(batch_means, 1 << (2 * size - 1).bit_length())
    products = np.fft.irfft((spectrum * spectrum.conj()).real)[:size]
    if products[0] <= 0:
        return 1.0, 0.0
    correlations = products / products[0]
    even_size = size - size % 2
    pairs = correlations[0:even_size:2] + correlations[1:even_size:2]
    ends = np.flatnonzero(pairs <= 0)
    positive_pairs = pairs[: ends[0]] if len(ends) else pairs
    tau = 2 * float(np.minimum.accumulate(positive_pairs).sum()) - 1 if len(positive_pairs) else 1.0
    long_run = width * float(products[0]) / size / variance
    return max(1.0, tau * long_run), float(correlations[1])


def _batch_variances(centred: Any) -> Iterator[tuple[float, int]]:
    """Variance of batch means (2, 4, 8 …) relative to independent values."""
    import numpy as np

    variance = float(np.mean(centred * centred))
    length = 2
    while variance > 0 and (batches := len(centred) // length) >= _FEWEST_BATCHES:
        batch_means = _batch_means(centred, length)
        yield length * float(batch_means.var(ddof=1)) / variance, batches
        length *= 2


def _batch_means(series: Any, length: int) -> Any:
    """Means of the complete batches of that length."""
    used_length = len(series) - len(series) % length
    return series[:used_length].reshape(-1, length).mean(axis=1)


def _central_mass(count: int) -> float:
    """P(B = count // 2) for a binomial B(count, ½)."""
    half_count = count // 2
    if count <= _EXACT_UP_TO:
        return math.comb(count, half_count) / (1 << count)
    log_ways = (
        math.lgamma(count + 1) - math.lgamma(half_count + 1) - math.lgamma(count - half_count + 1)
    )
    return math.exp(log_ways - count * math.log(2))
