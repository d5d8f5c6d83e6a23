"""Vectorized tests with Benjamini-Hochberg for the paired gate and the history gate.

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

from gpubench_plugin.compare.looks import FALSE_ALARMS, LOOK, MOST_PAIRS, false_discovery_rate

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]

# The false discovery rate where there is one look only, in a history.
Q: Final = FALSE_ALARMS / 3

# P value of signed ranks above which nothing is called, whatever its t; the second at 5 pairs. All
# of five pairs must be on one side, which is 0.03, and of ten all but one of the three smallest: it
# takes more than outlying launches. Where 40% of launches are about 30% slower, 0.9% of suites have
# a false alarm, and 1.07% at 0.05 throughout (docs/evidence/repeats.md).
_RANK_LEVEL: Final = 0.005
_RANK_LEVEL_OF_FIVE: Final = 0.05

# Factor of the p value by a series' own pairs, a second test beside that with the suite's noise, so
# that it hardly adds false alarms.
_OWN_PRICE: Final = 100.0

# Floor of a series' own p value, to the power of the pairs: the chance that each pair is a slow
# launch of the head and a fast one of the base, where half of all launches are slow. A clear effect
# on a quiet benchmark is called at ten pairs in the noisiest suite (1e-6), not at five (1e-3).
_MODES: Final = 0.25

# One-sided p value up to which a worse rate is not called unchanged; the usual level.
_SUSPICION: Final = 0.05

# Of the one-sided bounds of an effect; both together are a 99% interval.
CONFIDENCE: Final = 0.995

# Of a detectable effect, as is usual in the planning of experiments.
_POWER: Final = 0.8


@dataclass(frozen=True, kw_only=True)
class OwnPairs:
    """What the `count` pairs of each series say by themselves, before moderation.

    `error` is the standard error of their mean, `median` that of their effects. `p_above` and
    `p_below` are the p values of Wilcoxon's signed ranks, whatever the distribution, of the effects
    being above or below zero.
    """

    count: Floats
    error: Floats
    median: Floats
    p_above: Floats
    p_below: Floats


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """Mean effect, standard error and degrees of freedom per series.

    `floor` is the least error by which an effect is called, unless the series' `own_pairs` are
    clear enough; only paired estimates have those.
    """

    mean: Floats
    error: Floats
    dof: Floats
    floor: Floats | float = 0.0
    own_pairs: OwnPairs | None = None


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Standard deviation of each series with its degrees of freedom.

    Effects are called by `floor` where that is larger; intervals are by the deviation.
    """

    deviation: Floats
    dof: Floats | float
    floor: Floats | float = 0.0


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """Test decisions per series; `low` and `high` bound the effect.

    `rejected` are the series whose effect is significantly above zero, regressed or not.
    """

    regressed: Bools
    improved: Bools
    unchanged: Bools
    rejected: Bools
    low: Floats
    high: Floats


def paired_estimates(differences: Floats, spread: Spread | None = None) -> Estimates:
    """Paired t test estimates; the last axis of `differences` are the pairs.

    Their `spread` is their own standard deviation by default.
    """
    pairs = differences.shape[-1]
    used_spread = spread_about_mean(differences) if spread is None else spread
    return Estimates(
        mean=differences.mean(axis=-1),
        error=used_spread.deviation / np.sqrt(pairs),
        dof=np.asarray(used_spread.dof),
        floor=np.asarray(used_spread.floor) / np.sqrt(pairs),
        own_pairs=_own_pairs(differences),
    )


def _own_pairs(differences: Floats) -> OwnPairs:
    """Error and Wilcoxon signed-rank test (1945) over the last axis.

    Exact without ties; zeros have the lowest ranks and count on no side (J. Pratt, 1959).
    """
    pairs = differences.shape[-1]
    ranks = np.abs(differences).argsort(axis=-1).argsort(axis=-1) + 1
    at_least = _rank_sums(pairs)
    error = spread_about_mean(differences).deviation / np.sqrt(pairs)
    return OwnPairs(
        count=np.full(error.shape, float(pairs)),
        error=error,
        median=np.median(differences, axis=-1),
        p_above=at_least[(ranks * (differences > 0)).sum(axis=-1)],
        p_below=at_least[(ranks * (differences < 0)).sum(axis=-1)],
    )


@cache
def _rank_sums(pairs: int) -> Floats:
    """Upper tail probabilities of the rank sum under the null hypothesis."""
    chances = np.zeros(pairs * (pairs + 1) // 2 + 1)
    chances[0] = 1.0
    for rank in range(1, pairs + 1):
        chances[rank:] = chances[rank:] + chances[:-rank]
        chances = chances / 2
    at_least: Floats = chances[::-1].cumsum()[::-1]
    return at_least


def spread_about_mean(values: Floats) -> Spread:
    """Standard deviation of `values` around their mean, along the last axis."""
    return Spread(deviation=values.std(axis=-1, ddof=1), dof=values.shape[-1] - 1.0)


def judge_all_series(
    estimates: Estimates,
    worse: Floats,
    better: Floats,
    *,
    m: int,
    q: float = Q,
    loose: Bools | None = None,
) -> Decisions:
    """Test every series at one look.

    Args:
        estimates: of the effects.
        worse: smallest effect of a regression, per series.
        better: smallest effect of an improvement, negative.
        m: series of the whole suite; missing ones count as not rejected.
        q: the false discovery rate of this look.
        loose: mask of the series that are unchanged unless they are likely worse.
    """
    t = _t(estimates)
    p_worse: Floats = np.asarray(stats.t.sf(t, estimates.dof))
    p_better: Floats = np.asarray(stats.t.cdf(t, estimates.dof))
    is_suspect = (p_worse <= _SUSPICION) & (estimates.mean >= worse)
    if (own := estimates.own_pairs) is not None:
        is_suspect |= (own.p_above <= _SUSPICION) & (own.median >= worse)
        level = np.where(own.count > LOOK, _RANK_LEVEL, _RANK_LEVEL_OF_FIVE)
        p_worse = np.minimum(p_worse, _own_p_value(estimates.mean, own))
        p_worse = np.where(own.p_above <= level, p_worse, 1.0)
        p_better = np.minimum(p_better, _own_p_value(-estimates.mean, own))
        p_better = np.where(own.p_below <= level, p_better, 1.0)
    rejected = benjamini_hochberg(p_worse, m, q)
    regressed = rejected & (estimates.mean >= worse)
    improved = benjamini_hochberg(p_better, m, q) & (estimates.mean <= better)
    half_width = stats.t.ppf(CONFIDENCE, estimates.dof) * estimates.error
    high = estimates.mean + half_width
    not_worse = high < worse
    if loose is not None:
        not_worse = np.where(loose, ~is_suspect, not_worse)
    return Decisions(
        regressed=regressed,
        improved=improved,
        unchanged=~regressed & ~improved & not_worse,
        rejected=rejected,
        low=estimates.mean - half_width,
        high=high,
    )


def benjamini_hochberg(p: Floats, m: int, q: float = Q) -> Bools:
    """Mask of the `p` values along the last axis rejected among `m` at rate `q`."""
    padding = np.ones((*p.shape[:-1], max(0, m - p.shape[-1])))
    adjusted = stats.false_discovery_control(np.concatenate([p, padding], axis=-1), axis=-1)
    rejected: Bools = adjusted[..., : p.shape[-1]] <= q
    return rejected


def rejection_thresholds(rejected: Bools, m: int, q: float = Q) -> Floats:
    """P value threshold of each series, given the other rejections."""
    other_rejections = rejected.sum(axis=-1, keepdims=True) - rejected
    threshold: Floats = np.minimum(q * (other_rejections + 1.0) / max(m, rejected.shape[-1]), 0.5)
    return threshold


def detectable_effect(estimates: Estimates, worse: Floats, levels: Floats) -> Floats:
    """Smallest true effect detected with a power of 80%.

    By the usual sum of two quantiles of t instead of the noncentral t, which differs by a few
    percent; never less than the limit, below which nothing is called regressed.
    """
    quantiles = stats.t.isf(levels, estimates.dof) + stats.t.ppf(_POWER, estimates.dof)
    effects = quantiles * np.maximum(estimates.error, estimates.floor)
    if (own := estimates.own_pairs) is not None:
        power = stats.t.ppf(_POWER, own.count - 1)
        effects = np.minimum(effects, _own_critical_effect(levels, own.error, own.count, power))
    smallest: Floats = np.maximum(effects, worse)
    return smallest


def pairs_needed(
    mean: float,
    sd: float,
    pairs: int,
    *,
    worse: float,
    at: float,
    unchanged_from: int,
    own_error: float = math.inf,
    shared: float = 0.0,
    least: float = 0.0,
) -> int | None:
    """Estimate how many pairs would decide a series that `pairs` could not.

    Args:
        mean: mean effect of the pairs so far.
        sd: their standard deviation.
        pairs: their number.
        worse: smallest effect of a regression.
        at: p value at which it would be rejected now; later looks are stricter.
        unchanged_from: pairs required for "unchanged".
        own_error: standard deviation of these pairs alone; infinite if unknown.
        shared: degrees of freedom that the suite lends.
        least: least standard deviation by which it is called now; its variance falls as the root of
            the number of pairs.

    Returns:
        A multiple of five, or None where even 200 pairs are too few.
    """
    future_looks = np.arange(pairs // LOOK + 1, MOST_PAIRS // LOOK + 1)
    n: Floats = np.asarray(future_looks * LOOK, dtype=np.float64)
    current_rate = false_discovery_rate(max(pairs // LOOK, 1))
    rates = np.array([false_discovery_rate(int(number)) for number in future_looks])
    levels: Floats = at * rates / current_rate
    error, dof = sd / np.sqrt(n), n - 1 + shared
    called_by = np.maximum(error, least * (pairs / n) ** 0.25 / np.sqrt(n))
    critical_effect = np.minimum(
        stats.t.isf(levels, dof) * called_by,
        _own_critical_effect(levels, own_error / np.sqrt(n), n),
    )
    called_regressed = (abs(mean) >= worse) & (abs(mean) >= critical_effect)
    called_unchanged = (mean + stats.t.ppf(CONFIDENCE, dof) * error < worse) & (n >= unchanged_from)
    deciding_pairs = n[called_regressed | called_unchanged]
    return int(deciding_pairs[0]) if deciding_pairs.size else None


def _own_p_value(mean: Floats, own_pairs: OwnPairs) -> Floats:
    """One-sided p value from a series' own pairs alone."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.nan_to_num(mean / own_pairs.error, nan=0.0)
    p: Floats = np.minimum(
        _OWN_PRICE * stats.t.sf(t, own_pairs.count - 1) + _MODES**own_pairs.count, 1.0
    )
    return p


def _own_critical_effect(
    levels: Floats, error: Floats, pairs: Floats, power: Floats | float = 0.0
) -> Floats:
    """Smallest effect significant by a series' own pairs at these levels.

    `power` is a quantile of t that is added. Infinite where no effect is enough.
    """
    remaining_level = np.maximum(levels - _MODES**pairs, 0.0) / _OWN_PRICE
    quantiles = stats.t.isf(remaining_level, pairs - 1) + power
    with np.errstate(invalid="ignore"):  # pairs without variance
        effects: Floats = np.where(remaining_level > 0, quantiles * error, np.inf)
    return effects


def _t(estimates: Estimates) -> Floats:
    """Student's t; with zero spread, any effect but zero is infinitely significant."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = estimates.mean / np.maximum(estimates.error, estimates.floor)
    return np.where(np.isnan(t), 0.0, t)
