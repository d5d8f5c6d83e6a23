"""Samples that do not belong to the rest."""

from __future__ import annotations

import random

import pytest

from gpubench_plugin.measure.recording import has_outliers


@pytest.mark.parametrize("sd", [0.005, 0.015, 0.05])
@pytest.mark.parametrize("count", [10, 12, 20, 50, 100, 200, 1000])
def test_normal_noise_has_no_outliers(count: int, sd: float) -> None:
    """Of clean measurements at most 2% are flagged, however many samples they have."""
    noise = random.Random(7)
    runs = 200 if count <= 100 else 40
    flagged = sum(has_outliers([noise.gauss(1.0, sd) for _ in range(count)]) for _ in range(runs))
    assert flagged <= 0.02 * runs


@pytest.mark.parametrize("count", [20, 100, 1000])
@pytest.mark.parametrize("slower", [5.0, 10.0])
def test_rare_slow_calls_are_outliers(count: int, slower: float) -> None:
    """One to five calls in a hundred that take 5x to 10x are flagged."""
    noise = random.Random(7)
    for share in (0.01, 0.05):
        slow = max(1, round(share * count))
        calls = [noise.gauss(1.0, 0.02) for _ in range(count - slow)] + [slower] * slow
        assert has_outliers(calls)


NOISE = random.Random(7)


@pytest.mark.parametrize(
    "durations_s",
    [
        pytest.param([NOISE.gauss(1.0, 0.02) for _ in range(90)] + [0.2] * 10, id="fast ones"),
        pytest.param([1 + NOISE.expovariate(20) for _ in range(1000)], id="a floor with a tail"),
        pytest.param([NOISE.gauss(1.0, 0.01) for _ in range(999)] + [2.0], id="one in a thousand"),
        pytest.param([5e-6] * 90 + [5.041e-6] * 10, id="ticks of the clock"),
        *(pytest.param([0.5] * count, id=f"{count} equal ones") for count in (1, 2, 10)),
    ],
)
def test_what_belongs_to_the_rest_is_no_outlier(durations_s: list[float]) -> None:
    """Only what is slower than the rest is meant, if it is more than a single stall or a tick."""
    assert not has_outliers(durations_s)
