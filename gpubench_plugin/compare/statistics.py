"""The tests with Benjamini-Hochberg behind the paired and the history gate, for many series.

All effects are log ratios, positive where the head is worse. Arrays end in the axis of the series
of one suite; axes before it are suites, so that a simulation of thousands runs what judges one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from gpubench_plugin.compare.looks import FALSE_ALARMS, LOOK, MOST_PAIRS, rate_of_look

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]

Q: Final = FALSE_ALARMS / 3
"""The false discovery rate where there is one look only, in a history."""

_RANK_LEVEL: Final = 0.005
_RANK_LEVEL_OF_FIVE: Final = 0.05
"""The p value of signed ranks above which no t, however large, calls anything.

All of five pairs must be on one side, which is 0.03, and of ten all but one of the three smallest:
so it takes more than wild launches. Where 40 % of all launches are about 30 % slower 0.9 % of
suites have a false alarm so, and 1.07 % at 0.05 throughout (``docs/evidence/repeats.md``)."""

_OWN_PRICE: Final = 100.0
"""What a p value by nothing but the own pairs of a series is multiplied by, beside the one that the
suite has a say in: of two chances the second costs so little that alarms hardly increase."""

_MODES: Final = 0.25
"""To the power of the pairs, the chance that all of them are of a slow launch of the head and a
fast one of the base, where half of all launches are slow: no p value of a series by itself is
less. A clear effect on a quiet benchmark is called at ten pairs in the loudest suite so (1e-6), and
not at five (1e-3)."""

_SUSPICION: Final = 0.05
"""The p value of one side from which on a rate that is worse is not called unchanged."""

CONFIDENCE: Final = 0.995
"""Of the one-sided bounds of an effect; both together are a 99 % interval."""

_POWER: Final = 0.8


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """What the ranks of the effects of pairs say of each series, whatever their distribution.

    `median` is that of the effects; `above` and `below` are the p values of signed ranks that they
    are above or below zero, which at most may be the `level` where something is called.
    """

    median: Floats
    above: Floats
    below: Floats
    level: Floats | float


@dataclass(frozen=True, kw_only=True)
class Own:
    """What the pairs of each series say by themselves: the standard error, and their number."""

    error: Floats
    pairs: Floats


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """For each series the mean effect and its standard error; the degrees of freedom broadcast.

    `least` is the error by which an effect is called at least, unless the `own` pairs of the series
    are clear enough. Of pairs there are `own` and `ranks`.
    """

    mean: Floats
    error: Floats
    freedom: Floats
    least: Floats | float = 0.0
    own: Own | None = None
    ranks: Ranks | None = None


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The standard deviation of each series, with the degrees of freedom it is known by.

    By `least`, where that is more, an effect is called; its interval is by the deviation.
    """

    deviation: Floats
    freedom: Floats | float
    least: Floats | float = 0.0


@dataclass(frozen=True, kw_only=True)
class Findings:
    """For each series what was found; `low` and `high` are the bounds of the effect.

    `rejected` are the series whose effect is surely above zero, regressed or not.
    """

    regressed: Bools
    improved: Bools
    unchanged: Bools
    rejected: Bools
    low: Floats
    high: Floats


def paired(differences: Floats, spread: Spread | None = None) -> Estimates:
    """Estimates of the paired t test; the pairs are the last axis of `differences`.

    Their `spread` is their own standard deviation, unless a better one is known.
    """
    pairs = differences.shape[-1]
    own = spread_about_mean(differences)
    known = own if spread is None else spread
    return Estimates(
        mean=differences.mean(axis=-1),
        error=known.deviation / np.sqrt(pairs),
        freedom=np.asarray(known.freedom),
        least=np.asarray(known.least) / np.sqrt(pairs),
        own=Own(error=own.deviation / np.sqrt(pairs), pairs=np.full(own.deviation.shape, pairs)),
        ranks=signed_ranks(differences),
    )


def signed_ranks(differences: Floats) -> Ranks:
    """F. Wilcoxon's signed ranks (1945); the last axis are the pairs.

    Exact without ties; zeros have the lowest ranks and count on no side (J. Pratt, 1959).
    """
    ranks = np.abs(differences).argsort(axis=-1).argsort(axis=-1) + 1
    at_least = _rank_sums(differences.shape[-1])
    return Ranks(
        median=np.median(differences, axis=-1),
        above=at_least[(ranks * (differences > 0)).sum(axis=-1)],
        below=at_least[(ranks * (differences < 0)).sum(axis=-1)],
        level=_RANK_LEVEL if differences.shape[-1] > LOOK else _RANK_LEVEL_OF_FIVE,
    )


@cache
def _rank_sums(pairs: int) -> Floats:
    """The probability that the ranks of one side sum up to so much or more, without an effect."""
    chances = np.zeros(pairs * (pairs + 1) // 2 + 1)
    chances[0] = 1.0
    for rank in range(1, pairs + 1):
        chances[rank:] = chances[rank:] + chances[:-rank]
        chances = chances / 2
    at_least: Floats = chances[::-1].cumsum()[::-1]
    return at_least


def spread_about_mean(values: Floats) -> Spread:
    """The usual standard deviation of `values` that are of one level, along the last axis."""
    return Spread(deviation=values.std(axis=-1, ddof=1), freedom=values.shape[-1] - 1.0)


def find(
    estimates: Estimates,
    worse: Floats,
    better: Floats,
    *,
    m: int,
    q: float = Q,
    undecided: Bools | None = None,
    loose: Bools | None = None,
) -> Findings:
    """One look at every series.

    Args:
        estimates: of the effects.
        worse: the effect from which on a series has regressed, per series.
        better: the effect down to which it has improved, negative.
        m: series in the whole suite; those that are not here count as not rejected.
        q: the false discovery rate of this look.
        undecided: the series that are still looked at; the others count as not rejected.
        loose: the series that are unchanged unless they are likely to be worse: too noisy for
            anybody to be sure that they are not.
    """
    t = _t(estimates)
    above: Floats = np.asarray(stats.t.sf(t, estimates.freedom))
    below: Floats = np.asarray(stats.t.cdf(t, estimates.freedom))
    suspect = (above <= _SUSPICION) & (estimates.mean >= worse)
    if estimates.own is not None:
        above = np.minimum(above, _by_itself(estimates.mean, estimates.own))
        below = np.minimum(below, _by_itself(-estimates.mean, estimates.own))
    if (ranks := estimates.ranks) is not None:
        suspect |= (ranks.above <= _SUSPICION) & (ranks.median >= worse)
        above = np.where(ranks.above <= ranks.level, above, 1.0)
        below = np.where(ranks.below <= ranks.level, below, 1.0)
    if undecided is not None:
        above, below = np.where(undecided, above, 1.0), np.where(undecided, below, 1.0)
    rejected = benjamini_hochberg(above, m, q)
    regressed = rejected & (estimates.mean >= worse)
    improved = benjamini_hochberg(below, m, q) & (estimates.mean <= better)
    half = stats.t.ppf(CONFIDENCE, estimates.freedom) * estimates.error
    high = estimates.mean + half
    not_worse = high < worse
    if loose is not None:
        not_worse = np.where(loose, ~suspect, not_worse)
    unchanged = ~regressed & ~improved & not_worse
    if undecided is not None:
        unchanged &= undecided
    return Findings(
        regressed=regressed,
        improved=improved,
        unchanged=unchanged,
        rejected=rejected,
        low=estimates.mean - half,
        high=high,
    )


def benjamini_hochberg(p: Floats, m: int, q: float = Q) -> Bools:
    """Which of the `p` values along the last axis are rejected among `m` at the rate `q`."""
    missing = np.ones((*p.shape[:-1], max(0, m - p.shape[-1])))
    adjusted = stats.false_discovery_control(np.concatenate([p, missing], axis=-1), axis=-1)
    chosen: Bools = adjusted[..., : p.shape[-1]] <= q
    return chosen


def level(rejected: Bools, m: int, q: float = Q) -> Floats:
    """For each series the p value at which it would have been rejected beside the others."""
    others = rejected.sum(axis=-1, keepdims=True) - rejected
    least: Floats = np.minimum(q * (others + 1.0) / max(m, rejected.shape[-1]), 0.5)
    return least


def visible(estimates: Estimates, worse: Floats, levels: Floats) -> Floats:
    """The least true effect that would have been called regressed with a probability of 80 %.

    By the usual sum of two quantiles of t instead of the noncentral t, from which it differs by a
    few percent of itself; never less than the limit, below which nothing is called regressed.
    """
    quantiles = stats.t.isf(levels, estimates.freedom) + stats.t.ppf(_POWER, estimates.freedom)
    effects = quantiles * np.maximum(estimates.error, estimates.least)
    if (own := estimates.own) is not None:
        power = stats.t.ppf(_POWER, own.pairs - 1)
        effects = np.minimum(effects, _needed_by_itself(levels, own, power))
    least: Floats = np.maximum(effects, worse)
    return least


def pairs_needed(
    mean: float,
    sd: float,
    pairs: int,
    *,
    worse: float,
    at: float,
    unchanged_from: int,
    own: float = math.inf,
    shared: float = 0.0,
    least: float = 0.0,
) -> int | None:
    """About how many pairs decide a series that `pairs` could not, if it goes on like this.

    Args:
        mean: the mean of the effects of the pairs so far.
        sd: their standard deviation.
        pairs: how many there were.
        worse: the effect from which on it has regressed.
        at: the p value at which it would be rejected now; later looks are stricter.
        unchanged_from: the number of pairs from which on it may be unchanged.
        own: the standard deviation by nothing but these pairs; infinite where it is not known.
        shared: degrees of freedom that the suite lends.
        least: the standard deviation by which it is called at least now; its variance falls as the
            root of the number of pairs.

    Returns:
        A multiple of five, or None where even 200 would not do.
    """
    looks = np.arange(pairs // LOOK + 1, MOST_PAIRS // LOOK + 1)
    n: Floats = np.asarray(looks * LOOK, dtype=np.float64)
    now = rate_of_look(max(pairs // LOOK, 1))
    levels: Floats = at * np.array([rate_of_look(int(look)) for look in looks]) / now
    error, freedom = sd / np.sqrt(n), n - 1 + shared
    called_by = np.maximum(error, least * (pairs / n) ** 0.25 / np.sqrt(n))
    alone = Own(error=own / np.sqrt(n), pairs=n)
    needed = np.minimum(
        stats.t.isf(levels, freedom) * called_by, _needed_by_itself(levels, alone, 0.0)
    )
    called = (abs(mean) >= worse) & (abs(mean) >= needed)
    cleared = (mean + stats.t.ppf(CONFIDENCE, freedom) * error < worse) & (n >= unchanged_from)
    enough = n[called | cleared]
    return int(enough[0]) if enough.size else None


def _by_itself(mean: Floats, own: Own) -> Floats:
    """The p value that the effect is above zero by the own pairs of a series."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.nan_to_num(mean / own.error, nan=0.0)
    p: Floats = np.minimum(_OWN_PRICE * stats.t.sf(t, own.pairs - 1) + _MODES**own.pairs, 1.0)
    return p


def _needed_by_itself(levels: Floats, own: Own, power: Floats | float) -> Floats:
    """The effect from which on the own pairs of a series are enough at these levels.

    `power` is the quantile of t by which it must be more. Infinite where none is enough.
    """
    left = np.maximum(levels - _MODES**own.pairs, 0.0) / _OWN_PRICE
    quantiles = stats.t.isf(left, own.pairs - 1) + power
    with np.errstate(invalid="ignore"):  # of pairs that do not vary at all
        effects: Floats = np.where(left > 0, quantiles * own.error, np.inf)
    return effects


def _t(estimates: Estimates) -> Floats:
    """Student's t; without any spread every effect but zero is infinitely sure."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = estimates.mean / np.maximum(estimates.error, estimates.least)
    return np.where(np.isnan(t), 0.0, t)
