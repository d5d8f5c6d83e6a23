"""Whether rounds become slower or faster."""

from __future__ import annotations

from random import Random

import pytest

from gpubench_plugin.measure.warmup import ends_differ, is_trending
from tests.support.virtual_steps import levels


def noise(seed: int, count: int, sd: float = 0.02) -> list[float]:
    draws = Random(seed)
    return [1 + sd * draws.gauss() for _ in range(count)]


def wandering(seed: int, count: int, phi: float, sd: float = 0.02) -> list[float]:
    """An AR(1) process."""
    draws = Random(seed)
    state, values = draws.gauss(), []
    for _ in range(count):
        state = phi * state + (1 - phi * phi) ** 0.5 * draws.gauss()
        values.append(1 + sd * state)
    return values


@pytest.mark.parametrize("factor", [1.001, 0.999])
def test_a_leak_is_a_trend_in_either_direction(factor: float) -> None:
    """A tenth of a percent from round to round is 6% from one third to the other."""
    assert is_trending([factor**n for n in range(100)], 0.02)


@pytest.mark.parametrize("at", [0.35, 0.5, 0.65])
def test_a_step_in_the_middle_moves_the_ends_apart_but_is_no_trend(at: float) -> None:
    """A machine that becomes slower at once is in another phase; what leaks goes on leaking."""
    values = [1.0 if n < at * 100 else 1.2 for n in range(100)]
    assert ends_differ(values, 0.02)
    assert not is_trending(values, 0.02)


@pytest.mark.parametrize(("dwell", "most"), [(10, 2), (40, 24)])
def test_phases_of_a_machine_are_seldom_a_trend(dwell: int, most: int) -> None:
    """Levels that last for a twentieth or a fifth of the rounds move the ends, in no order."""
    series = []
    for seed in range(200):
        course = levels(Random(seed), dwell, 0.02)
        series.append([course(0.0, call) for call in range(200)])
    assert sum(ends_differ(values, 0.01) for values in series) > 2 * most
    assert sum(is_trending(values, 0.01) for values in series) <= most


def test_within_the_tolerance_there_is_no_trend() -> None:
    """However plain it is."""
    assert not is_trending([1 + 0.00025 * n for n in range(100)], 0.02)
    assert is_trending([1 + 0.00025 * n for n in range(100)], 0.01)


def test_a_small_trend_is_seen_in_many_noisy_rounds() -> None:
    """5% in all, in noise of 5%, where the parts overlap widely."""
    values = [value * (1 + 0.08 * n / 900) for n, value in enumerate(noise(1, 900, 0.05))]
    assert is_trending(values, 0.02)


@pytest.mark.parametrize("sd", [0.01, 0.05])
@pytest.mark.parametrize("count", [10, 20, 100])
def test_noise_is_no_trend(count: int, sd: float) -> None:
    """Of independent rounds 1% seem to have one, at ten rounds and less above."""
    assert sum(is_trending(noise(seed, count, sd), 0.02) for seed in range(200)) <= 5


@pytest.mark.parametrize(("phi", "most"), [(0.5, 2), (0.9, 18)])
def test_dependent_rounds_are_seldom_a_trend(phi: float, most: int) -> None:
    """Rounds that wander about their median come back."""
    assert sum(is_trending(wandering(seed, 100, phi), 0.02) for seed in range(200)) <= most


@pytest.mark.parametrize("period", [[1.0, 2.0], [1.0, 1.0, 2.0], [1.0, 2.0, 3.0, 2.0]])
@pytest.mark.parametrize("count", [10, 11, 12, 13, 99, 100])
def test_what_repeats_is_no_trend(period: list[float], count: int) -> None:
    """Whatever part of the period the parts begin with."""
    assert not is_trending([period[n % len(period)] for n in range(count)], 0.02)


def test_nine_rounds_have_no_trend() -> None:
    """They could not be told from noise."""
    assert not is_trending([1.1**n for n in range(9)], 0.02)
    assert is_trending([1.1**n for n in range(10)], 0.02)
