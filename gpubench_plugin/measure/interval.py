"""The confidence interval of a median, from the order of the values and their dependence.

No distribution is assumed. Of independent values the number below the true median is binomial with
probability ½, so two order statistics enclose it with a known probability. Source: H. A. David
and H. N. Nagaraja, Order Statistics, 3rd edition (2003), section 7.1.

Rounds of one process are seldom independent: what slows one slows its neighbours. The variance of
the share of values below a level is then that of fewer values, and the interval as much wider. How
many fewer is estimated twice and the worse taken: by the initial monotone sequence of the
autocorrelations (C. J. Geyer, Practical Markov chain Monte Carlo, Statistical Science 7 (1992),
473-483) and, where dependence is plain to see, by the means of batches.
``docs/evidence/interval.md`` tells how often the interval is right, looks at it included.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, median
from typing import Any, Final

from gpubench_plugin.measure.student import expanded_t

# Up to here the central binomial probability is computed in exact integers; above, where they
# grow too long, by lgamma.
_EXACT_UP_TO = 1000

FEWEST_TO_JUDGE: Final = 100
"""Below so many values dependence can go unseen: intervals of an AR(1) process of φ = 0.9 hold its
median in 85 % of cases for 50 values, and in 94 % for 100 (``docs/evidence/interval.md``)."""

FEWEST_EFFECTIVE: Final = 50
"""Below so many independent values' worth, values that depend on each other are ``dependent``. Of
modes that last for 15 rounds, 4 % of measurements have a half-width below 1 % and no flag; with a
bound of 30 it were 6 % (``docs/evidence/interval.md``)."""

# Values too few to judge may hide their dependence where the middle 80 % span more than so many
# half-widths. Of normal noise, whose half-width at the strict level of a look is 1.25 · 2.73 σ/√n,
# they span 2.56 σ: 7.5 times as much for 100 values, less for fewer. Of modes of 1x and 3x that
# last for a tenth of the least time 0.7 % of measurements are confident, without this 6 %.
_WIDE: Final = 10

# Levels on either side of the median at which the share of values below is tested. Values of two
# modes have their dependence between the modes, not at the median of the one that happened to be
# seen more often.
_LEVELS: Final = 8

# Of independent values P(Z > 2.5) = 0.6 % have a first autocorrelation this many standard errors,
# 1/√n each, above zero.
_SIGNIFICANT: Final = 2.5

# The mean of a batch says something of the long run; five of them something of its variance.
_FEWEST_BATCHES: Final = 5

# More values are averaged over neighbours first, for the time and the memory of the transform.
_MOST_SERIES: Final = 4096

# Fewer have no autocorrelation worth the name: they are taken as independent.
_FEWEST_SERIES: Final = 20


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A median with the two values that enclose it, all in the unit of the values.

    `effective_count` is the number of independent values that tell as much; None where there are
    too few to know: then the values are taken as independent unless they show otherwise.
    """

    median: float
    low: float
    high: float
    effective_count: float | None

    @property
    def half_width(self) -> float:
        """Half the interval relative to the median: (high - low) / 2 / median."""
        return (self.high - self.low) / 2 / self.median


@dataclass(frozen=True, kw_only=True)
class _Level:
    """How the share of values below one level varies.

    `offset` is the level's distance from the median, as a share of all values; `spread` the
    standard deviation of being below, relative to that at the median; `time` the number of values
    that count as one; `batches` the variances of the means of batches, each relative to that of
    independent values, with the number of batches.
    """

    offset: float
    spread: float
    time: float
    batches: tuple[tuple[float, int], ...]

    def widening(self, count: int, z: float) -> float:
        """How many times as wide the interval is as that of `count` independent values."""
        effective = count / self.time
        student = math.sqrt(self.time) * expanded_t(effective - 1, z) / expanded_t(count - 1, z)
        by_batches = (
            math.sqrt(variance) * expanded_t(batches - 1, z) / z
            for variance, batches in self.batches
        )
        return self.spread * max(student, *by_batches, 0.0)


class Dependence:
    """How much `values` depend on their neighbours, in the order in which they came."""

    def __init__(self, values: Sequence[float]) -> None:
        self.count = len(values)
        self._ordered = sorted(values)
        self._levels: tuple[_Level, ...] = ()
        self._significant = False
        if self.count >= _FEWEST_SERIES and self._ordered[0] < self._ordered[-1]:
            self._significant, self._levels = _judged(values, self._ordered)

    @property
    def strong(self) -> bool:
        """Whether so few independent values are left that the median may be anywhere.

        At any level: where one of two modes was seen more often, the dependence is between them.
        """
        if not self._significant:
            return False
        return self.count / max(level.time for level in self._levels) < FEWEST_EFFECTIVE

    def may_hide(self, half_width: float) -> bool:
        """Whether values too few to judge are spread too widely for noise that is so well known.

        They are of two modes, say, between which nobody knows yet how long one lasts. `half_width`
        is relative to the median.
        """
        if not 1 <= self.count < FEWEST_TO_JUDGE:
            return False
        low, high = (self._ordered[int(share * (self.count - 1))] for share in (0.1, 0.9))
        return high - low > _WIDE * half_width * median(self._ordered)

    def interval(self, confidence: float) -> Interval | None:
        """The interval that covers the median with this confidence; None: too few values for it."""
        below, above, effective = self._reach(confidence)
        if math.isinf(below):
            return None
        middle = (self.count + 1) / 2
        low, high = math.floor(middle - below), math.ceil(middle + above)
        if low < 1 or high > self.count:
            return None
        known = self.count >= FEWEST_TO_JUDGE
        return Interval(
            median=median(self._ordered),
            low=self._ordered[low - 1],
            high=self._ordered[high - 1],
            effective_count=effective if known else None,
        )

    def _reach(self, confidence: float) -> tuple[float, float, float]:
        """Ranks below and above the middle, and the number of independent values they rest on.

        The interval holds every level for the median of which the share of values below it is no
        evidence against.
        """
        ranks = interval_ranks(self.count, confidence)
        if ranks is None:
            return math.inf, math.inf, float(self.count)
        plain = (self.count + 1) / 2 - ranks[0]
        if not self._levels:
            return plain, plain, float(self.count)
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        middle = self._levels[0]
        below = above = plain * max(1.0, middle.widening(self.count, z))
        longest = middle.time
        for level in self._levels[1:]:
            distance = abs(level.offset) * self.count
            if plain * level.widening(self.count, z) < distance:
                continue
            longest = max(longest, level.time)
            if level.offset < 0:
                below = max(below, distance)
            else:
                above = max(above, distance)
        return below, above, self.count / longest


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """The interval that covers the median of the process with at least `confidence`.

    `values` stand in the order in which they came. None where they are too few to reach it: fewer
    than six independent ones at 95 %.
    """
    return Dependence(values).interval(confidence)


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


def _judged(values: Sequence[float], ordered: list[float]) -> tuple[bool, tuple[_Level, ...]]:
    """Whether the values are plainly dependent, and how they vary about each level."""
    import numpy as np

    series, steps = np.asarray(values, dtype=np.float64), np.asarray(ordered)
    count = len(steps)
    ranks = np.searchsorted(steps, series, "left") + np.searchsorted(steps, series, "right")
    ranks_time, ranks_follow = _autocorrelated(ranks - ranks.mean())
    offsets = [side * at / (_LEVELS + 1) / 2 for at in range(1, _LEVELS + 1) for side in (-1, 1)]
    centred, time, follow = _below(series, median(ordered))
    significant = max(follow, ranks_follow) > _SIGNIFICANT / math.sqrt(min(count, _MOST_SERIES))
    sides = [(0.0, centred, time)]
    for offset in offsets:
        at = int((0.5 + offset) * count)
        if 1 <= at < count - 1:
            centred, time, _ = _below(series, ordered[at])
            sides.append((offset, centred, time))
    return significant, tuple(
        _Level(
            offset=offset,
            spread=min(1.0, 2 * float(centred.std())),
            time=max(1.0, time, ranks_time),
            batches=tuple(_batches(centred)) if significant else (),
        )
        for offset, centred, time in sides
    )


def _below(series: Any, level: float) -> tuple[Any, float, float]:
    """For each value whether it is above `level` (½: equal), centred; its time and first lag."""
    above = (series > level) + 0.5 * (series == level)
    centred = above - above.mean()
    return (centred, *_autocorrelated(centred))


def _autocorrelated(centred: Any) -> tuple[float, float]:
    """The integrated autocorrelation time of a series, at least 1, and its first autocorrelation.

    Geyer's initial monotone sequence: the sums of two neighbouring autocorrelations, as long as
    they are positive, each no larger than the one before.
    """
    import numpy as np

    variance = float(np.mean(centred * centred))
    if variance <= 0:
        return 1.0, 0.0
    width = -(-len(centred) // _MOST_SERIES)
    means = _means(centred, width)
    size = len(means)
    spectrum = np.fft.rfft(means, 1 << (2 * size - 1).bit_length())
    products = np.fft.irfft((spectrum * spectrum.conj()).real)[:size]
    if products[0] <= 0:
        return 1.0, 0.0
    correlations = products / products[0]
    even = size - size % 2
    pairs = correlations[0:even:2] + correlations[1:even:2]
    ends = np.flatnonzero(pairs <= 0)
    positive = pairs[: ends[0]] if len(ends) else pairs
    time = 2 * float(np.minimum.accumulate(positive).sum()) - 1 if len(positive) else 1.0
    long_run = width * float(products[0]) / size / variance
    return max(1.0, time * long_run), float(correlations[1])


def _batches(centred: Any) -> Iterator[tuple[float, int]]:
    """Variances of the means of batches of 2, 4, 8 …, relative to independent values."""
    import numpy as np

    variance = float(np.mean(centred * centred))
    length = 2
    while variance > 0 and (batches := len(centred) // length) >= _FEWEST_BATCHES:
        means = _means(centred, length)
        yield length * float(means.var(ddof=1)) / variance, batches
        length *= 2


def _means(series: Any, length: int) -> Any:
    """The means of whole batches of that length."""
    whole = len(series) - len(series) % length
    return series[:whole].reshape(-1, length).mean(axis=1)


def _central_mass(count: int) -> float:
    """P(B = count // 2) for a binomial B(count, ½)."""
    middle = count // 2
    if count <= _EXACT_UP_TO:
        return math.comb(count, middle) / (1 << count)
    log_ways = math.lgamma(count + 1) - math.lgamma(middle + 1) - math.lgamma(count - middle + 1)
    return math.exp(log_ways - count * math.log(2))
