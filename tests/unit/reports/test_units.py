"""Tests of numbers as people read them."""

from __future__ import annotations

import pytest

from gpubench_plugin.core.format import count, quantity
from gpubench_plugin.reports import text
from gpubench_plugin.reports.text import ASCII


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
    assert count(value) == expected


def test_quantities_have_the_unit_that_fits() -> None:
    """Seconds, bytes, FLOP/s and rates get a prefix; any other unit follows the number."""
    assert quantity(0.0003601, "s") == "360.1 µs"
    assert quantity(2e-6, "s", micro="u") == "2.000 us"
    assert quantity(3.571e8, "bytes") == "340.6 MiB"
    assert quantity(2.5e9, "bytes/s") == "2.500 GB/s"
    assert quantity(7.82e-5, "TFLOP/s") == "78.20 MFLOP/s"
    assert quantity(12340.0, "samples/s") == "12.34k/s"
    assert quantity(0.35, "fraction") == "35%"
    assert quantity(3.1, "W") == "3.100 W"
