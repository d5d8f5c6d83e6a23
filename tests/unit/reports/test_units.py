"""Tests of numbers as people read them."""

from __future__ import annotations

import pytest

from gpubench_plugin.reports import ASCII, text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0 ns"),
        (1e-10, "0.1000 ns"),
        (12.3456e-9, "12.35 ns"),
        (0.99994e-6, "999.9 ns"),
        (0.99996e-6, "1.000 µs"),
        (1e-6, "1.000 µs"),
        (1.5e-3, "1.500 ms"),
        (0.99996, "1.000 s"),
        (59.9, "59.90 s"),
        (12345.0, "12345 s"),
    ],
)
def test_seconds(value: float, expected: str) -> None:
    """A duration gets the unit in which at least one digit stands before the point."""
    assert text.seconds(value) == expected


def test_seconds_in_ascii() -> None:
    """Where the terminal has no µ, microseconds are written with u."""
    assert text.seconds(2e-6, ASCII) == "2.000 us"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.5, "0.5000"), (434.21, "434.2"), (999.96, "1.000k"), (12345, "12.35k"), (3.2e14, "320.0T")],
)
def test_count(value: float, expected: str) -> None:
    """A rate gets the prefix of its thousands."""
    assert text.count(value) == expected
