"""The confidence interval of a median, from the order of the values."""

from __future__ import annotations

import math

import pytest

from gpubench_plugin.measure import interval_ranks, median_interval


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
    """At 95 % the ranks agree with tables of the sign test; five values are too few."""
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
