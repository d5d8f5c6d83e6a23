"""Samples that do not belong to the rest."""

from __future__ import annotations

import random

from gpubench_plugin.measure import has_outliers


def test_normal_noise_has_no_outliers() -> None:
    """A normal spread of 5 % is not flagged."""
    noise = random.Random(7)
    assert not has_outliers([noise.gauss(1.0, 0.05) for _ in range(2000)])


def test_stalls_are_outliers() -> None:
    """One duration in fifty that is twice as long is flagged."""
    noise = random.Random(7)
    durations = [noise.gauss(1.0, 0.01) for _ in range(980)] + [2.0] * 20
    assert has_outliers(durations)


def test_one_stall_in_a_thousand_is_none() -> None:
    """A single stall among many durations says nothing."""
    noise = random.Random(7)
    assert not has_outliers([noise.gauss(1.0, 0.01) for _ in range(999)] + [2.0])


def test_the_ticks_of_a_clock_are_none() -> None:
    """Durations that differ by a tick of the clock are not flagged, though most are equal."""
    assert not has_outliers([5e-6] * 90 + [5.041e-6] * 10)


def test_equal_durations_have_no_outliers() -> None:
    """Nothing stands out where nothing differs."""
    assert not has_outliers([0.5] * 10)
