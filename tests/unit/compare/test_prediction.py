import math

import numpy as np
import pytest
from scipy import stats

from gpubench_plugin.compare.prediction import (
    inlier_mask,
    level_of,
    noise_about_level,
    noise_of_steps,
    prediction_estimates,
    variance_of_median,
    variance_within,
)


def test_the_prediction_of_one_more_value_has_the_spread_of_the_earlier_ones():
    """Several new values count as their median and narrow it as √(s²·v(n) + s²/k) says."""
    earlier = np.random.default_rng(1).normal(size=10)
    level, usual = level_of(earlier), noise_about_level(earlier)
    one = prediction_estimates(level, np.array([4.0]), usual)
    three = prediction_estimates(level, np.array([4.0, 3.0, 9.0]), usual)
    spread = earlier.std(ddof=1)
    assert float(one.mean) == pytest.approx(4.0 - earlier.mean())
    assert float(one.error) == pytest.approx(spread * math.sqrt(1.1))
    assert float(three.mean) == float(one.mean)
    assert float(three.error) == pytest.approx(spread * math.sqrt(variance_of_median(3) + 0.1))
    assert float(one.dof) == 9


@pytest.mark.slow
@pytest.mark.parametrize("count", [10, 20])
def test_the_spread_about_a_level_keeps_its_promise(count):
    """Without outliers it is a little too small, which the factor and the freedom make up for."""
    generator = np.random.default_rng(1)
    earlier, head = generator.normal(size=(200_000, count)), generator.normal(size=(200_000, 1))
    seen = prediction_estimates(level_of(earlier), head, noise_about_level(earlier))
    p = stats.t.sf(np.abs(seen.mean) / seen.error, seen.dof)
    for level in (0.01, 0.001):
        assert (p < level).mean() < 2 * 1.3 * level
    assert (p < 0.01 / 60).mean() < 2 * 1.5 * 0.01 / 60


@pytest.mark.parametrize("wrong", [0.10, math.log(10)])
def test_one_bad_pin_of_ten_does_not_blind(wrong):
    """A true 10% beside 0.5% of noise is called at least nine times of ten."""
    earlier = 0.005 * np.random.default_rng(2).normal(size=(5_000, 10))
    head = math.log(1.1) + 0.005 * np.random.default_rng(3).normal(size=(5_000, 1))
    earlier[:, 3] += wrong
    seen = prediction_estimates(level_of(earlier), head, noise_about_level(earlier))
    p = stats.t.sf(seen.mean / seen.error, seen.dof)
    assert (p < 0.01 / 60).mean() >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("count", [10, 15, 20])
@pytest.mark.parametrize("pinned", [1, 5, 9])
def test_the_noise_of_steps_keeps_its_promise(count, pinned):
    """With it the prediction t of values of one level exceeds its quantiles no more than it may."""
    generator = np.random.default_rng(1)
    earlier, head = generator.normal(size=(100_000, count)), generator.normal(size=(100_000, 1))
    seen = prediction_estimates(level_of(earlier[:, :pinned]), head, noise_of_steps(earlier))
    p = stats.t.sf(seen.mean / seen.error, seen.dof)
    for level in (0.01, 0.001):
        assert 0.25 * level < (p < level).mean() < 1.15 * level


@pytest.mark.slow
def test_neither_creep_nor_a_step_nor_one_slow_run_is_noise():
    """Nor is a value an outlier of others that are all equal; variances are as simulated."""
    values = np.random.default_rng(1).normal(size=(20_000, 20))
    usual = np.sqrt((noise_of_steps(values).deviation ** 2).mean())
    since = np.arange(20)
    for shape in (0.005 * since, since >= 1, since >= 7, since >= 19, since < 7, since == 7):
        moved = noise_of_steps(values + 100.0 * shape).deviation
        assert np.sqrt((moved**2).mean()) < 1.1 * usual
    assert inlier_mask(np.array([1.0] * 9 + [2.0]), 1).all()
    far = inlier_mask(np.array([1.0, 1.1, 1.2, 0.9, 0.8, 1.0, 1.1, 0.9, 1.05, 9.0]), 1)
    assert far.tolist() == [True] * 9 + [False]
    values = np.random.default_rng(1).normal(size=(100_000, 3))
    assert variance_of_median(1) == pytest.approx(1.0)
    assert np.median(values, axis=1).var() == pytest.approx(variance_of_median(3), rel=0.04)
    runs = [*2.0 * values[:2_000]]
    runs[5] = runs[5] + np.array([0.0, 500.0, 0.0])
    assert variance_within(runs) == pytest.approx(4.0, rel=0.1)
    assert variance_within([]) == 0.0
