"""Spreads that the series of a suite share."""

import numpy as np
import pytest

from gpubench_plugin.compare.statistics import Spread
from gpubench_plugin.compare.t_tests import estimate_prior, posterior_spread
from tests.support import simulation as sim


def spreads(noise, pairs=5, series=20, seed=3):
    differences = noise * np.random.default_rng(seed).standard_normal((series, pairs))
    return Spread(deviation=differences.std(axis=-1, ddof=1), dof=pairs - 1.0)


def test_equal_noise_is_known_by_all_series_together():
    """Most spreads come close to the true one, with far more degrees of freedom than their own."""
    own = spreads(0.02)
    shared = posterior_spread(own, estimate_prior(own), 10)
    assert (np.abs(np.log(shared.deviation / 0.02)) < 0.15).mean() >= 0.85
    assert (np.abs(np.log(own.deviation / 0.02)) < 0.15).mean() <= 0.5
    assert np.median(shared.dof) > 15


def test_a_series_that_is_louder_than_the_suite_keeps_its_spread():
    """Else what is quiet beside it would take its noise for an effect; so with mixed noise."""
    noise = np.full((60, 1), 0.01)
    noise[0] = 0.05
    own = spreads(noise, series=60)
    shared = posterior_spread(own, estimate_prior(own), 5)
    assert shared.deviation[0] == pytest.approx(own.deviation[0], rel=0.05)
    assert shared.dof[0] < 4.1
    assert shared.dof.max() > 10
    own = spreads(np.geomspace(0.003, 0.03, 20)[:, None])
    shared = posterior_spread(own, estimate_prior(own), 10)
    assert (shared.dof < 10).all()
    assert shared.deviation[-1] > 3 * shared.deviation[0]


def test_few_or_still_series_share_nothing():
    """That two are alike proves nothing; nothing fails where variances are zero."""
    own = spreads(0.02, series=2)
    shared = posterior_spread(own, estimate_prior(own), 5)
    assert (shared.deviation == own.deviation).all()
    own = spreads(0.02, series=1)
    shared = posterior_spread(own, estimate_prior(own), 5)
    assert (shared.deviation, shared.dof) == (own.deviation, own.dof)
    own = Spread(deviation=np.zeros(3), dof=4.0)
    assert (posterior_spread(own, estimate_prior(own), 5).deviation == 0).all()
    deviation = np.zeros(20)
    deviation[:2] = 0.01, 0.02
    own = Spread(deviation=deviation, dof=4.0)
    shared = posterior_spread(own, estimate_prior(own), 5)
    assert shared.deviation[:2] == pytest.approx([0.01, 0.02], rel=0.1)


def test_the_parameters_are_those_that_the_variances_were_drawn_from():
    """8 degrees of freedom and a variance of 4: of many series, to a few percent."""
    generator = np.random.default_rng(4)
    variances = 4.0 * 8 / generator.chisquare(8, 20_000)
    own = Spread(deviation=np.sqrt(variances * generator.chisquare(9, 20_000) / 9), dof=9.0)
    prior = estimate_prior(own)
    assert prior.variance.item() == pytest.approx(4.0, rel=0.05)
    assert prior.dof.item() == pytest.approx(8.0, rel=0.08)


def test_nothing_is_called_by_a_spread_that_is_far_below_the_others():
    """Five differences that happen to be equal have no spread; more of them may be believed."""
    own = spreads(0.05)
    own.deviation[0] = 1e-9
    few, many = (
        posterior_spread(own, estimate_prior(own), pairs).floor.item() for pairs in (5, 45)
    )
    assert few == pytest.approx(0.05 * 0.7**0.5, rel=0.3)
    assert many == pytest.approx(few / 3**0.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["bimodal", "mixed, 0.3 to 3%", "one loud, 3% among 1%", "one suite of all these"]
)
def test_at_most_one_suite_of_a_hundred_has_a_false_alarm(kind):
    """Also where launches have modes or benchmarks differ in noise; more in docs/evidence."""
    kinds = sim.sequential(sim.noise_kinds(9)[kind](2_000, 15)).kinds
    assert sim.rates(kinds, 0.0).alarms <= 0.015  # 1% and 2.3 standard errors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "effect", "caught", "pairs"),
    [
        ("normal, 2.0%", 0.03, 0.60, 15.0),
        ("normal, 2.0%", 0.05, 0.97, 9.0),
        ("normal, 2.0%", 0.10, 0.97, 5.5),
        ("mixed, 0.3 to 3%", 0.03, 0.45, 15.0),
        ("mixed, 0.3 to 3%", 0.05, 0.95, 11.0),
        ("mixed, 0.3 to 3%", 0.10, 0.95, 7.0),
    ],
)
def test_slowdowns_are_caught_by_few_pairs(kind, effect, caught, pairs):
    """One slower benchmark in a suite of 20, limit 2%; up to 2.3 standard errors of the share."""
    course = sim.sequential(sim.slower(sim.noise_kinds(9)[kind](2_000, 15), effect))
    chance = 2.3 * (caught * (1 - caught) / 2_000) ** 0.5
    assert (course.kinds[:, 0] == "regressed").mean() >= caught - chance
    assert course.pairs[:, 0].mean() <= pairs
