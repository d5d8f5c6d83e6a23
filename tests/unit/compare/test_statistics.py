import math

import numpy as np
import pytest
from scipy import stats

from gpubench_plugin.compare import statistics
from gpubench_plugin.compare.statistics import Estimates, benjamini_hochberg, judge_all_series

WORSE, BETTER = np.asarray(math.log1p(0.02)), np.asarray(math.log1p(-0.02))


def test_the_paired_test_is_that_of_scipy():
    """And the rejected are those of Benjamini and Hochberg; absent series count as not rejected."""
    generator = np.random.default_rng(1)
    base, head = generator.normal(size=(2, 10))
    seen = statistics.paired_estimates(head - base)
    p = stats.t.sf(seen.mean / seen.error, seen.dof)
    assert p == pytest.approx(stats.ttest_rel(head, base, alternative="greater").pvalue)
    p = np.array([0.001, 0.9, 0.014, 0.011, 0.5])
    assert benjamini_hochberg(p, 5, q=0.025).tolist() == [True, False, True, True, False]
    p = np.array([0.01, 0.02])
    assert benjamini_hochberg(p, 2, q=0.02).tolist() == [True, True]
    assert benjamini_hochberg(p, 3, q=0.02).tolist() == [False, False]
    levels = statistics.rejection_thresholds(np.array([True, False, False]), 10)
    assert levels == pytest.approx(np.array([1, 2, 2]) * statistics.Q / 10)


def test_sure_effects_are_judged_by_the_limit():
    """Without any spread, and where one percent at a limit of two is unchanged."""
    exact = Estimates(mean=np.array([0.05, 0.0]), error=np.zeros(2), dof=np.asarray(4.0))
    found = judge_all_series(exact, WORSE, BETTER, m=2)
    assert found.regressed.tolist() == [True, False]
    assert found.unchanged.tolist() == [False, True]
    small = Estimates(mean=np.array([0.01]), error=np.array([1e-4]), dof=np.asarray(14.0))
    found = judge_all_series(small, WORSE, BETTER, m=1)
    assert (found.rejected[0], found.regressed[0], found.unchanged[0]) == (True, False, True)


def test_the_smallest_visible_effect_is_called_four_times_of_five():
    """Simulated with that very effect, 80% are rejected; without noise it is the limit itself."""
    generator = np.random.default_rng(2)
    level = statistics.Q / 20
    noise = 0.02 * math.sqrt(2)
    known = Estimates(
        mean=np.zeros(1), error=np.array([noise / math.sqrt(15)]), dof=np.array([14.0])
    )
    least = float(statistics.detectable_effect(known, WORSE, np.array([level]))[0])
    seen = statistics.paired_estimates(least + noise * generator.standard_normal((20_000, 15)))
    called = (stats.t.sf(seen.mean / seen.error, 14) <= level).mean()
    assert called == pytest.approx(0.8, abs=0.06)
    still = Estimates(mean=np.zeros(1), error=np.zeros(1), dof=np.array([4.0]))
    assert statistics.detectable_effect(still, WORSE, np.array([1e-4]))[0] == WORSE


def test_the_pairs_needed_are_a_look_to_come_that_would_decide():
    """A multiple of five, more than there were; nothing where no number would do."""

    def needed(mean, pairs, unchanged_from=10):
        return statistics.pairs_needed(
            mean, 0.03, pairs, worse=float(WORSE), at=1e-4, unchanged_from=unchanged_from
        )

    assert needed(0.05, 5) == 15
    assert needed(0.0, 15) == 20
    assert needed(0.0, 15, unchanged_from=40) == 40
    assert needed(float(WORSE) * 0.999, 15) is None


@pytest.mark.parametrize(("least", "pairs"), [(0.0, 15), (0.06, 30), (1.0, None)])
def test_the_pairs_needed_are_by_the_spread_by_which_effects_are_called(least, pairs):
    """A quiet series among loud ones is called by far more than its own spread."""
    options = {"worse": float(WORSE), "at": 1e-4, "unchanged_from": 10, "least": least}
    assert statistics.pairs_needed(0.05, 0.001, 10, **options) == pairs


@pytest.mark.parametrize("pairs", [5, 10, 15])
def test_what_never_varies_is_judged_beside_what_does(pairs):
    """Without any warning, and it could see whatever reaches the limit, once it may be alone."""
    differences = np.stack([np.full(pairs, 0.05), np.resize([-0.1, 0.1], pairs)])
    spread = statistics.Spread(
        deviation=differences.std(axis=-1), dof=np.full(2, pairs - 1.0), floor=0.2
    )
    estimates = statistics.paired_estimates(differences, spread)
    findings = statistics.judge_all_series(estimates, WORSE, np.asarray(-0.03), m=20)
    assert findings.regressed.tolist() == [pairs > 5, False]
    seen = statistics.detectable_effect(estimates, WORSE, np.full(2, 2e-4))
    assert (seen[0] == pytest.approx(float(WORSE))) == (pairs > 5)


@pytest.mark.parametrize(("own", "pairs"), [(0.001, 10), (0.02, 15), (0.05, 50)])
def test_a_clear_effect_on_a_quiet_series_needs_ten_pairs_in_the_loudest_suite(own, pairs):
    """And fewer than by the suite where it is louder; at five all may be in two modes by chance."""
    options = {"worse": float(WORSE), "at": 1e-4, "unchanged_from": 10, "least": 9.0}
    assert statistics.pairs_needed(0.05, own, 5, own_error=own, **options) == pairs
