"""The confidence interval of a median, from the order of the values."""

from __future__ import annotations

import math
from random import Random

import pytest

from gpubench_plugin.measure.interval import Autocorrelation, interval_ranks, median_interval


def coverage(count: int, low: int) -> float:
    """The exact probability that the low-th values from both ends enclose the median."""
    ways = sum(math.comb(count, below) for below in range(low, count - low + 1))
    return ways / 2**count


@pytest.mark.parametrize(
    ("count", "ranks"),
    [(0, None), (1, None), (5, None), (6, (1, 6)), (10, (2, 9)), (20, (6, 15)), (100, (40, 61))],
)
def test_the_ranks_are_those_of_the_published_tables(
    count: int, ranks: tuple[int, int] | None
) -> None:
    """At 95% the ranks agree with tables of the sign test; five values are too few."""
    assert ranks == interval_ranks(count, 0.95)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
def test_the_interval_is_the_narrowest_that_covers_enough(confidence: float) -> None:
    """For every count the coverage reaches the confidence, and one rank further in it does not."""
    for count in range(1, 200):
        ranks = interval_ranks(count, confidence)
        if ranks is None:
            assert coverage(count, 1) < confidence
            continue
        low, high = ranks
        assert count + 1 == low + high
        assert coverage(count, low) >= confidence
        assert low == (count + 1) // 2 or coverage(count, low + 1) < confidence


@pytest.mark.slow
@pytest.mark.parametrize("count", [1001, 1002, 3000])
def test_large_counts_keep_the_exact_ranks(count: int) -> None:
    """Above the exact range of the computation the ranks are still those of exact integers."""
    low = next(rank for rank in range(count // 2, 0, -1) if coverage(count, rank) >= 0.95)
    assert (low, count - low + 1) == interval_ranks(count, 0.95)


def test_a_million_values_agree_with_the_normal_limit() -> None:
    """For many values the low rank is n/2 - 0.98 √n, as the normal distribution has it."""
    low, _ = interval_ranks(1_000_000, 0.95) or (0, 0)
    assert abs(low - (500_000 - 979.98)) < 2


def test_the_half_width_is_relative_to_the_median() -> None:
    """Ten values enclose their median by the second and the ninth."""
    interval = median_interval([10.0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert interval is not None
    assert (interval.low, interval.median, interval.high) == (2, 5.5, 9)
    assert interval.half_width == (9 - 2) / 2 / 5.5


def test_too_few_values_have_no_interval() -> None:
    """No interval is made up where the values cannot reach the confidence."""
    assert median_interval([1.0, 2, 3, 4, 5]) is None


def noise(count: int, phi: float = 0.0, seed: int = 3) -> list[float]:
    """Normal noise of 2% of which a share stays from value to value."""
    draws = Random(seed)
    state, values = draws.gauss(), []
    for _ in range(count):
        state = phi * state + math.sqrt(1 - phi * phi) * draws.gauss()
        values.append(1 + 0.02 * state)
    return values


def half_width(values: list[float]) -> float:
    interval = median_interval(values)
    return math.inf if interval is None else interval.half_width


def effective(values: list[float]) -> float:
    interval = median_interval(values)
    assert interval is not None
    assert interval.effective_count is not None
    return interval.effective_count


def test_dependent_values_have_a_wider_interval() -> None:
    """The same values in another order say less of their median."""
    dependent = noise(200, phi=0.9)
    shuffled = Random(1).sample(dependent, len(dependent))
    assert half_width(dependent) > 2 * half_width(shuffled)


def test_the_effective_count_is_that_of_theory() -> None:
    """Of an AR(1) process of φ = 0.5, 3 values count as one; independent ones for themselves."""
    assert 2000 / 4 < effective(noise(2000, phi=0.5)) < 2000 / 2
    assert effective(noise(2000)) > 2000 * 0.8


def test_fewer_than_a_hundred_values_do_not_know_how_they_depend() -> None:
    """The interval has no effective count: it assumes independence."""
    counts = []
    for count in (10, 50, 99, 100):
        interval = median_interval(noise(count))
        assert interval is not None
        counts.append(interval.effective_count is not None)
    assert counts == [False, False, False, True]


def test_fewer_than_twenty_values_are_taken_as_independent() -> None:
    """Their order, which may be chance, changes nothing."""
    values = noise(19)
    low, high = interval_ranks(19, 0.95) or (0, 0)
    interval = median_interval(sorted(values))
    assert interval is not None
    assert (interval.low, interval.high) == (sorted(values)[low - 1], sorted(values)[high - 1])


def test_strong_dependence_is_told() -> None:
    """Two values in five hundred, but not five in ten, are enough to hide the median."""
    assert Autocorrelation(noise(200, phi=0.98)).is_strong
    assert not Autocorrelation(noise(500, phi=0.3)).is_strong


def test_dependence_that_the_median_does_not_see_is_told() -> None:
    """One pair of two is slow, for two hundred values on end in another way than before."""
    draws, values = Random(3), []
    for slow in (2.0, 4.0, 2.0):
        for _ in range(100):
            value = draws.choice((1.0, slow))
            values += [value + draws.uniform(0, 0.01), value + draws.uniform(0, 0.01)]
    assert Autocorrelation(values).is_strong


@pytest.mark.slow
@pytest.mark.parametrize("count", [20, 50, 80, 100])
def test_independent_noise_is_not_called_dependent(count: int) -> None:
    """In two of a hundred cases at most; nor does it hide anything, measured long enough."""
    noises = [Autocorrelation(noise(count, seed=seed)) for seed in range(100)]
    assert sum(one.is_strong for one in noises) <= 2
    assert not any(one.may_be_undetected(0.01) for one in noises)


@pytest.mark.parametrize(
    ("values", "hide"),
    [
        (([1.0] * 6 + [3.0] * 4) * 9, True),
        (([1.0] * 6 + [3.0] * 4) * 10, False),
        (([1.0] * 19 + [3.0]) * 4, False),
        ([], False),
    ],
)
def test_few_values_of_two_modes_may_hide_how_they_depend(values: list[float], hide: bool) -> None:
    """A hundred can be judged, and single slow values are no mode."""
    assert Autocorrelation(values).may_be_undetected(0.01) is hide


@pytest.mark.parametrize("values", [[0.5] * 200, [1.0, 2.0] * 100], ids=["equal", "by turns"])
def test_equal_and_alternating_values_do_not_depend(values: list[float]) -> None:
    """Nothing resembles its neighbour more than another: the interval is that of any order."""
    assert half_width(values) == half_width(Random(1).sample(values, 200))
    assert effective(values) >= 200
    assert not Autocorrelation(values).is_strong


def test_many_values_are_judged_alike() -> None:
    """Beyond what is transformed at once, neighbours are averaged first."""
    assert 20_000 / 40 < effective(noise(20_000, phi=0.9)) < 20_000 / 10
