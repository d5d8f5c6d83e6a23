"""The t tests with Benjamini-Hochberg behind the paired and the history gate, for many series.

All effects are log ratios, positive where the head is worse. Arrays end in the axis of the series
of one suite; axes before it are suites, so that a simulation of thousands runs what judges one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]

Q: Final = 0.01 / 3
"""The false discovery rate of one look: three add up to at most 1 % false alarms of a suite."""

CONFIDENCE: Final = 0.995
"""Of the one-sided bounds of an effect; both together are a 99 % interval."""

_POWER: Final = 0.8
_MOST_PAIRS: Final = 200


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """For each series the mean effect and its standard error; the degrees of freedom broadcast."""

    mean: Floats
    error: Floats
    freedom: Floats


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The standard deviation of each series, with the degrees of freedom it is known by."""

    deviation: Floats
    freedom: float


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


def paired(differences: Floats) -> Estimates:
    """Estimates of the paired t test; the pairs are the last axis of `differences`."""
    pairs = differences.shape[-1]
    mean = differences.mean(axis=-1)
    error = differences.std(axis=-1, ddof=1) / np.sqrt(pairs)
    return Estimates(mean=mean, error=error, freedom=np.asarray(pairs - 1.0))


def prediction(level: Floats, head: Floats, spread: Spread) -> Estimates:
    """Estimates of the prediction t: how far `head` is from being one of those of the `level`.

    Both hold log values, positive where worse, along the last axis. With a spread of s, the mean of
    n more differs from that of k by s·√(1/n + 1/k).
    """
    k, n = level.shape[-1], head.shape[-1]
    mean = head.mean(axis=-1) - level.mean(axis=-1)
    error = spread.deviation * np.sqrt(1 / n + 1 / k)
    return Estimates(mean=mean, error=error, freedom=np.asarray(spread.freedom))


def spread_about_mean(values: Floats) -> Spread:
    """The usual standard deviation of `values` that are of one level, along the last axis."""
    return Spread(deviation=values.std(axis=-1, ddof=1), freedom=values.shape[-1] - 1.0)


def spread_of_steps(values: Floats) -> Spread:
    """The standard deviation from run to run of ten or more `values`, oldest first, last axis.

    From the differences of neighbours (J. von Neumann, 1941), so that a slow creep does not count,
    and without the largest rise, which may be the very step that is to be found. What that rise
    takes from the sum, and the degrees of freedom of what is left, are simulated for 10 to 20
    normal values (`tests/unit/compare/test_statistics.py`).
    """
    steps = np.diff(values, axis=-1)
    rise = np.maximum(steps.max(axis=-1), 0.0)
    left = np.maximum((steps**2).sum(axis=-1) - rise**2, 0.0) / 2
    count = steps.shape[-1]
    return Spread(deviation=np.sqrt(left / (count - 3.0)), freedom=0.6 * count)


def find(
    estimates: Estimates,
    worse: Floats,
    better: Floats,
    *,
    m: int,
    undecided: Bools | None = None,
) -> Findings:
    """One look at every series.

    Args:
        estimates: of the effects.
        worse: the effect from which on a series has regressed, per series.
        better: the effect down to which it has improved, negative.
        m: series in the whole suite; those that are not here count as not rejected.
        undecided: the series that are still looked at; the others count as not rejected.
    """
    t = _t(estimates)
    above: Floats = np.asarray(stats.t.sf(t, estimates.freedom))
    below: Floats = np.asarray(stats.t.cdf(t, estimates.freedom))
    if undecided is not None:
        above, below = np.where(undecided, above, 1.0), np.where(undecided, below, 1.0)
    rejected = benjamini_hochberg(above, m)
    regressed = rejected & (estimates.mean >= worse)
    improved = benjamini_hochberg(below, m) & (estimates.mean <= better)
    half = stats.t.ppf(CONFIDENCE, estimates.freedom) * estimates.error
    high = estimates.mean + half
    unchanged = ~regressed & ~improved & (high < worse)
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


def level(rejected: Bools, m: int) -> Floats:
    """For each series the p value at which it would have been rejected beside the others."""
    others = rejected.sum(axis=-1, keepdims=True) - rejected
    least: Floats = np.minimum(Q * (others + 1.0) / max(m, rejected.shape[-1]), 0.5)
    return least


def visible(estimates: Estimates, worse: Floats, levels: Floats) -> Floats:
    """The least true effect that would have been called regressed with a probability of 80 %.

    By the usual sum of two quantiles of t instead of the noncentral t, from which it differs by a
    few percent of itself; never less than the limit, below which nothing is called regressed.
    """
    quantiles = stats.t.isf(levels, estimates.freedom) + stats.t.ppf(_POWER, estimates.freedom)
    least: Floats = np.maximum(quantiles * estimates.error, worse)
    return least


def pairs_needed(mean: float, sd: float, pairs: int, *, worse: float, at: float) -> int | None:
    """About how many pairs decide a series that `pairs` could not, if it goes on like this.

    Args:
        mean: the mean of the effects of the pairs so far.
        sd: their standard deviation.
        pairs: how many there were.
        worse: the effect from which on it has regressed.
        at: the p value at which it would be rejected.

    Returns:
        A multiple of five, or None where even 200 would not do.
    """
    n = np.arange(pairs // 5 * 5 + 5, _MOST_PAIRS + 1, 5, dtype=np.float64)
    error = sd / np.sqrt(n)
    called = (abs(mean) >= worse) & (abs(mean) >= stats.t.isf(at, n - 1) * error)
    cleared = mean + stats.t.ppf(CONFIDENCE, n - 1) * error < worse
    enough = n[called | cleared]
    return int(enough[0]) if enough.size else None


def _t(estimates: Estimates) -> Floats:
    """Student's t; without any spread every effect but zero is infinitely sure."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = estimates.mean / estimates.error
    return np.where(np.isnan(t), 0.0, t)
