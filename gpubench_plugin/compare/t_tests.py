"""One look at many series by moderated t tests.

Empirical Bayes moderation shrinks a series' variance towards that of its suite: the variances of a
suite's series are taken for draws of one scaled inverse χ² distribution, whose location and degrees
of freedom are estimated from all of them; a series' own variance and the suite's are weighed by
their degrees of freedom (G. Smyth, "Linear models and empirical Bayes methods", 2004, sections 3
and 6.2). Arrays end in the axis of the series of one suite.

Imported only where something is tested, since it imports numpy and scipy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from scipy import special

from gpubench_plugin.compare.launch_values import (
    LaunchValues,
    effect_text,
    interval_text,
    variation_text,
)
from gpubench_plugin.compare.looks import LOOK
from gpubench_plugin.compare.statistics import (
    Decisions,
    Estimates,
    Floats,
    OwnPairs,
    Q,
    Spread,
    detectable_effect,
    judge_all_series,
    paired_estimates,
    rejection_thresholds,
    spread_about_mean,
)
from gpubench_plugin.compare.step_time import Subject, subject_of
from gpubench_plugin.compare.threshold import better_bar, fraction, log_ratio, verdict, worse_bar
from gpubench_plugin.core.format import grouped
from gpubench_plugin.core.verdicts import Method, Verdict, VerdictKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

_Rows = TypeVar("_Rows", Estimates, OwnPairs, Spread)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Numbers of one series that a test needs.

    `spread` is the standard deviation of the effects, `noise` that of the log value of one launch.
    An effect is called by `floor` where that exceeds `spread`. `base` and `head` are geometric
    means, whose ratio is exactly the effect; `launches` counts pairs or earlier runs.
    """

    series: LaunchValues
    estimates: Estimates
    spread: float
    floor: float = 0.0
    noise: float
    base: float
    head: float
    launches: int


@dataclass(frozen=True, kw_only=True)
class TTestResult:
    """Test result of one series, as fractions.

    `level` is the p value at which it would have been called beside the others; `is_unchanged`
    ignores how many pairs "unchanged" requires.
    """

    sample: Sample
    kind: VerdictKind
    effect: float
    interval: tuple[float, float]
    detectable: float
    level: float
    is_unchanged: bool

    @property
    def effect_text(self) -> str:
        """Effect and interval, ``4.1% slower, 99% interval 3.2% to 5.0%``, or the variation."""
        series = self.sample.series
        text = f"{effect_text(series, self.effect)}, {interval_text(series, self.interval)}"
        return variation_text(series, self.interval, "values") or text

    def noise_text(self, noun: str) -> str:
        """Why nothing can be said, if values of the plural `noun` vary too much; else empty."""
        variation = variation_text(self.sample.series, self.interval, noun)
        return f"too noisy to judge: {variation}; quiet the machine" if variation else ""

    def verdict(self, method: Method, reason: str, *, pairs_needed: int | None = None) -> Verdict:
        """Build the verdict with its `reason`."""
        sample = self.sample
        return verdict(
            sample.series,
            self.kind,
            method,
            reason,
            base=sample.base,
            head=sample.head,
            effect=self.effect,
            launches=sample.launches,
            interval=self.interval,
            smallest_visible_effect=self.detectable,
            pairs_needed=pairs_needed,
        )


# Added share, over the number of series less one, by which a suite's variances differ more than
# observed: few series do not show how equal their noise is.
_CAUTION: Final = 1.25

_FEWEST: Final = 3  # series needed for a prior: two may be alike by chance

# P value of a variance from which on a series belongs to the suite; noisier ones do in proportion.
# One series with three times the noise of 59 others gives false alarms in 2.9% of suites without
# that, in 0.8% with it (B. Phipson et al., "Robust hyperparameter estimation protects against
# hypervariable genes", 2016).
_OUTLIER: Final = 0.25

# Share of the variance that three of four series of a suite do not exceed: the least by which an
# effect is called at five pairs; √(5/n) of that at n. Launches in one of two modes give five
# differences of one sign and size once in 2¹⁰, which would be 2% of false alarms in suites of 20
# such series. From ten pairs on a series may be called by itself, see `statistics._MODES`.
_LOUD: Final = 0.75
_LOUD_SHARE: Final = 0.75

# Least variance in shares of the median, so that zeros have a logarithm.
_TINY: Final = 1e-5


@dataclass(frozen=True, kw_only=True)
class Prior:
    """Variance prior estimated from a suite; array shapes end in 1.

    `dof` is 0 without information, as of a suite of two series. `noisy_variance` is the variance
    that three of four series do not exceed.
    """

    variance: Floats
    dof: Floats
    noisy_variance: Floats


def estimate_prior(suite: Spread) -> Prior:
    """Estimate the prior from the spreads of a suite."""
    variances = suite.deviation**2
    count = variances.shape[-1]
    noisy_quantile = np.quantile(variances, _LOUD, axis=-1, keepdims=True, method="lower")
    if count < _FEWEST or not np.any(variances):
        zeros = np.zeros_like(noisy_quantile)
        return Prior(variance=zeros, dof=zeros, noisy_variance=zeros)
    half_freedom = np.broadcast_to(np.asarray(suite.dof, dtype=np.float64) / 2, variances.shape)
    floor = _TINY * np.maximum(np.median(variances, axis=-1, keepdims=True), np.finfo(float).tiny)
    logs = (
        np.log(np.maximum(variances, floor)) - special.digamma(half_freedom) + np.log(half_freedom)
    )
    expected = special.polygamma(1, half_freedom).mean(axis=-1, keepdims=True)
    observed = logs.var(axis=-1, ddof=1, keepdims=True)
    excess_variance = np.maximum(observed - expected, 0.0)
    excess_variance = excess_variance + _CAUTION / (count - 1) * np.maximum(observed, expected)
    prior_half = _inverse_trigamma(excess_variance)
    mean = logs.mean(axis=-1, keepdims=True)
    variance: Floats = np.exp(mean + special.digamma(prior_half) - np.log(prior_half))
    return Prior(variance=variance, dof=2 * prior_half, noisy_variance=noisy_quantile)


def posterior_spread(
    spread: Spread, prior: Prior, pairs: NDArray[np.int_] | int, members: Floats | None = None
) -> Spread:
    """Posterior spread of each series given the `prior`.

    Args:
        spread: of each series by itself.
        prior: of their suite.
        pairs: number behind each spread.
        members: membership of each series' benchmark, at most its own: it limits the degrees of
            freedom lent, but does not lower a variance.
    """
    own_freedom = np.asarray(spread.dof, dtype=np.float64)
    prior_freedom = prior.dof * membership(spread, prior)
    borrowed_freedom = prior_freedom if members is None else prior.dof * members
    total_freedom = own_freedom + borrowed_freedom
    variances = [
        (own_freedom * spread.deviation**2 + share * prior.variance) / (own_freedom + share)
        for share in (prior_freedom, borrowed_freedom)
    ]
    variance = np.maximum(*variances)
    floor = _LOUD_SHARE * prior.noisy_variance * np.sqrt(LOOK / np.asarray(pairs))
    return Spread(deviation=np.sqrt(variance), dof=total_freedom, floor=np.sqrt(floor))


def membership(spread: Spread, prior: Prior) -> Floats:
    """Degree of membership of each series in the suite, 0 to 1; lower if it is too noisy.

    A benchmark has that of its noisiest metric, since each of three may seem quiet by chance in
    five pairs: one benchmark with three times the noise of 19 others gives false alarms in 1.2% of
    suites, two in 1.5%; by the noisiest 0.1% (``docs/evidence/paired_gate.md``).
    """
    if not np.any(prior.dof):
        return np.ones_like(prior.dof)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # tiny variances
        ratio = spread.deviation**2 / prior.variance
    tail_probability = special.fdtrc(spread.dof, prior.dof, ratio)
    members: Floats = np.fmin(tail_probability / _OUTLIER, 1.0)
    return members


def _inverse_trigamma(values: Floats) -> Floats:
    """Inverse of the trigamma function for positive `values`, by Newton's method on 1/trigamma.

    It is nearly linear, so that five steps from 0.5 + 1/x do (Smyth, appendix).
    """
    x: Floats = 0.5 + 1 / values
    for _ in range(5):
        trigamma = special.polygamma(1, x)
        x = x + trigamma * (1 - trigamma / values) / special.polygamma(2, x)
    return x


def paired_samples(
    series: Sequence[LaunchValues], pairs: Sequence[int], decided: Sequence[LaunchValues] = ()
) -> list[Sample]:
    """Samples of the first `pairs` pairs of each series, five or more, all positive.

    Series of one kind share their noise, also with those `decided` by an earlier look.
    """
    effects = [_effects(item, number) for item, number in zip(series, pairs, strict=True)]
    effects += [_effects(item, len(item.head)) for item in decided]
    spreads = [spread_about_mean(values) for values in effects]
    suites = grouped(zip(map(_noise_kind, (*series, *decided)), spreads, strict=True))
    priors = {kind: estimate_prior(_stacked(suite)) for kind, suite in suites.items()}
    members: dict[Subject, Floats] = {}
    for item, spread in zip(series, spreads, strict=False):
        degree, subject = membership(spread, priors[_noise_kind(item)]), subject_of(item)
        members[subject] = np.fmin(degree, members.get(subject, degree))
    return [
        _paired_sample(item, values, spread, priors[_noise_kind(item)], members[subject_of(item)])
        for item, values, spread in zip(series, effects, spreads, strict=False)
    ]


def _noise_kind(series: LaunchValues) -> str:
    return series.part or series.metric


def _effects(series: LaunchValues, pairs: int) -> Floats:
    value_pairs = zip(series.base[:pairs], series.head[:pairs], strict=True)
    return np.array([log_ratio(base, head, series.better) for base, head in value_pairs])


def _paired_sample(
    series: LaunchValues, effects: Floats, own: Spread, prior: Prior, members: Floats
) -> Sample:
    pairs = len(effects)
    posterior = posterior_spread(own, prior, pairs, members)
    spread = Spread(**{name: np.asarray(a).reshape(()) for name, a in vars(posterior).items()})
    return Sample(
        series=series,
        estimates=paired_estimates(effects, spread),
        spread=float(spread.deviation),
        floor=float(spread.floor),
        noise=float(spread.deviation) / math.sqrt(2),  # a difference has the noise of two launches
        base=geometric_mean(series.base[:pairs]),
        head=geometric_mean(series.head[:pairs]),
        launches=pairs,
    )


def run_tests(
    samples: Sequence[Sample], m: int, *, q: float = Q, unchanged_from: int = 0
) -> list[TTestResult]:
    """Test all `samples` at one look, in order; `m` and `q` as :func:`.judge_all_series`.

    Only lenient series are unchanged by fewer launches than `unchanged_from`.
    """
    estimates = _stacked([sample.estimates for sample in samples])
    series = [sample.series for sample in samples]
    worse = np.array([worse_bar(item.limit, item.better) for item in series])
    better = np.array([better_bar(item.limit, item.better) for item in series])
    is_lenient = np.array([item.is_lenient for item in series])
    decisions = judge_all_series(estimates, worse, better, m=m, q=q, loose=is_lenient)
    levels = rejection_thresholds(decisions.rejected, m, q)
    detectable = detectable_effect(estimates, worse, levels)

    def result(number: int, sample: Sample) -> TTestResult:
        effect, low, high, smallest = (
            fraction(float(log_effects[number]), sample.series.better)
            for log_effects in (estimates.mean, decisions.low, decisions.high, detectable)
        )
        has_enough = sample.series.is_lenient or sample.launches >= unchanged_from
        return TTestResult(
            sample=sample,
            kind=_kind(decisions, number, unchanged=has_enough),
            effect=effect,
            interval=(low, high),
            detectable=smallest,
            level=float(levels[number]),
            is_unchanged=bool(decisions.unchanged[number]),
        )

    return [result(number, sample) for number, sample in enumerate(samples)]


def _stacked(rows: Sequence[_Rows]) -> _Rows:
    """Stack records of single series, and the records in them, into arrays."""

    def stacked(name: str) -> Any:
        values = [getattr(row, name) for row in rows]
        if is_dataclass(values[0]):
            return _stacked(values)
        return None if values[0] is None else np.array([float(value) for value in values])

    return replace(rows[0], **{field.name: stacked(field.name) for field in fields(rows[0])})


def _kind(decisions: Decisions, number: int, *, unchanged: bool) -> VerdictKind:
    if decisions.regressed[number]:
        return "regressed"
    if decisions.improved[number]:
        return "improved"
    return "unchanged" if unchanged and decisions.unchanged[number] else "inconclusive"
