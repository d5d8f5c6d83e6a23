import math

import numpy as np
import pytest

from gpubench_plugin.baselines.trend import change_points


def history(runs, noise=0.01, seed=0, step_at=None, step=0.05):
    logs = noise * np.random.default_rng(seed).standard_normal(runs)
    if step_at is not None:
        logs[step_at:] += math.log1p(step)
    return np.exp(logs).tolist()


@pytest.mark.parametrize("after", [4, 8, 30])
def test_a_step_of_five_percent_is_found_within_a_few_runs(after):
    """At one percent of noise, four runs after it, in 95% of histories, to the run or the next."""
    found = [change_points(history(30 + after, seed=s, step_at=30)) for s in range(60)]
    right = [len(points) == 1 and abs(points[0] - 30) <= 1 for points in found]
    assert np.mean(right) >= 0.95


@pytest.mark.parametrize("runs", [8, 20, 60])
def test_flat_histories_have_no_change(runs):
    """At most five of a hundred are flagged, also with heavy tails."""
    flagged = [bool(change_points(history(runs, seed=s))) for s in range(200)]
    assert np.mean(flagged) <= 0.05
    generator = np.random.default_rng(1)
    heavy = [bool(change_points(np.exp(0.01 * generator.standard_t(3, runs)))) for _ in range(200)]
    assert np.mean(heavy) <= 0.05


def test_a_level_starts_at_its_first_run_once_it_has_three():
    """Two slow runs do not make a level with the fast one before them."""
    flat = history(10)
    assert change_points([*flat, 1.3, 1.4]) == []
    assert change_points([*flat, 1.3, 1.4, 1.35]) == [10]
    assert change_points([1.4, 1.3, *flat]) == []


def test_several_levels_are_all_found():
    """Each by its position, also falling and constant; single slow runs and bad values are none."""
    values = history(20) + [1.1 * v for v in history(20, seed=1)] + history(20, seed=2)
    assert change_points(values) == [20, 40]
    assert change_points(history(40, step_at=20, step=-0.05)) == [20]
    assert change_points([512.0] * 20) == []
    assert change_points([512.0] * 10 + [517.2] * 10) == [10]
    values = history(40)
    values[10] *= 3
    values[25] *= 1.5
    assert change_points(values) == []
    assert change_points([1.0] * 3 + [9.0] * 4) == []
    assert change_points([]) == []
    values = history(40, step_at=20)
    values[5:5] = [math.nan, 0.0, -1.0, math.inf]
    assert change_points(values) == [24]
    values = history(50, seed=4, step_at=25)
    assert change_points(values) == change_points(values) == [25]
