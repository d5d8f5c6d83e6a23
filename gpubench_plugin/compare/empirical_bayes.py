"""Empirical Bayes moderation: shrink a series' variance towards that of its suite.

The variances of a suite's series are taken for draws of one scaled inverse χ² distribution, whose
location and degrees of freedom are estimated from all of them; a series' own variance and the
suite's are weighed by their degrees of freedom (G. Smyth, "Linear models and empirical
Bayes methods", 2004, sections 3 and 6.2). Arrays end in the axis of the series of one suite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import special

from gpubench_plugin.compare.looks import LOOK
from gpubench_plugin.compare.statistics import Floats, Spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    spread: Spread,
    prior: Prior,
    pairs: NDArray[np.int_] | int,
    members: Floats | None = None,
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
