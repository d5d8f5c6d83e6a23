"""Tests of lists, plurals, numbers, sizes and commits in words."""

from __future__ import annotations

import csv
import io
import math

import pytest

from gpubench_plugin.core.format import (
    byte_size,
    change_percentage,
    counted,
    csv_text,
    decimal_rate,
    duration,
    listed,
    percentage,
    plural,
    rough_duration,
    short_commit,
    significant,
)


def test_a_long_list_ends_with_how_many_more_there_are() -> None:
    """None is counted that is listed."""
    assert listed("abcde") == "a, b, c, d, e"
    assert listed("abcdef") == "a, b, c, d, e and 1 more"
    assert listed("abc", most=1, separator="; ") == "a; and 2 more"
    assert listed("") == ""


def test_nouns_are_counted() -> None:
    """Of one there is no plural."""
    assert (counted(1, "pair"), counted(2, "pair")) == ("1 pair", "2 pairs")
    assert (counted(0, "more run"), counted(3, "launch")) == ("0 more runs", "3 launches")
    assert plural("run") == "runs"


def test_a_commit_is_shortened() -> None:
    """There may be none."""
    assert short_commit("0123456789abcdef") == "012345678"
    assert short_commit(None) == ""


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (0.0, 4, "0"),
        (0.012344, 4, "0.01234"),
        (1.0, 4, "1.000"),
        (9.99996, 4, "10.00"),
        (1234.5, 4, "1234"),
        (123456.7, 4, "123457"),
        (0.0996, 2, "0.10"),
        (-1.5, 2, "-1.5"),
        (float("nan"), 4, "nan"),
        (float("inf"), 4, "inf"),
    ],
)
def test_significant_digits(value: float, digits: int, expected: str) -> None:
    """A number is rounded to its significant digits, and no digit before the point is lost."""
    assert significant(value, digits) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.000 KiB"),
        (956_000_000, "911.7 MiB"),
        (80 * 2**30, "80.00 GiB"),
        (2**41, "2.000 TiB"),
    ],
)
def test_byte_size(value: float, expected: str) -> None:
    """Memory is given in binary units."""
    assert byte_size(value) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.0003601, "360.1 µs"), (59.9, "59.90 s"), (0.99996e-6, "1.000 µs"), (0.0, "0 ns")],
)
def test_a_duration_has_the_unit_that_fits(seconds: float, expected: str) -> None:
    """At least one digit stands before the point."""
    assert duration(seconds) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.1, "1 s"), (89, "89 s"), (300, "5 min"), (4800, "80 min"), (6000, "1 h 40 min")],
)
def test_an_estimate_reads_like_a_clock(seconds: float, expected: str) -> None:
    """Seconds, then minutes, then hours."""
    assert rough_duration(seconds) == expected


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (7.82e7, "FLOP/s", "78.20 MFLOP/s"),
        (1.2e12, "FLOP/s", "1.200 TFLOP/s"),
        (1.5e9, "B/s", "1.500 GB/s"),
        (0.25, "B/s", "0.2500 B/s"),
        (0.0, "B/s", "0 B/s"),
    ],
)
def test_a_rate_has_the_prefix_that_fits(value: float, unit: str, expected: str) -> None:
    """Prefixes of rates are decimal."""
    assert decimal_rate(value, unit) == expected


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (0.0, 2, "0%"),
        (0.00062, 2, "0.062%"),
        (0.123, 2, "12%"),
        (0.4123, 3, "41.2%"),
        (1.5, 2, "150%"),
    ],
)
def test_percentage(value: float, digits: int, expected: str) -> None:
    """A share of one is given in percent."""
    assert percentage(value, digits) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (0, "0.00%"),
        (-1e-9, "0.00%"),
        (0.0035, "0.35%"),
        (0.041, "4.1%"),
        (0.1234, "12%"),
        (-0.041, "-4.1%"),
        (543.2, "54300%"),
        (-0.99944, "-99.94%"),
        (math.inf, "> 1000x"),
        (1e308, "> 1000x"),
        (999.0, "99900%"),
        (math.nan, "nan%"),
    ],
)
def test_a_change_has_the_digits_that_matter(change: float, expected: str) -> None:
    """Two decimals below one percent, one below ten, none above; nothing has no sign."""
    assert change_percentage(change) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (0.77, "+80%"),
        (159.0, "+20000%"),
        (1.5, "+200%"),
        (-0.0038, "-0.4%"),
        (-0.949, "-90%"),
        (-0.9938, "< -90%"),
        (0.97, "> +90%"),
        (2000.0, "> 1000x"),
        (0.0, "0.00%"),
        (math.nan, "+nan%"),
    ],
)
def test_a_change_in_doubt_has_one_digit(change: float, expected: str) -> None:
    """And none that is less rounds to 100%."""
    assert change_percentage(change, 1, with_sign=True) == expected


def test_a_change_may_have_a_sign_and_more_digits() -> None:
    """As in the tables, where a column has changes of both directions."""
    changes = [0.0412, -0.2, 1.931, 0.0]
    assert [change_percentage(change, 3, with_sign=True) for change in changes] == [
        *("+4.12%", "-20.0%", "+193%", "0.00%")
    ]


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("=1+1", "'=1+1"),
        (" @you", "' @you"),
        ("a\nb\x1b", "a\\nb\\x1b"),
        ("plain, with a comma", "plain, with a comma"),
        (0.1 + 0.2, "0.30000000000000004"),
        (-3, "-3"),
        (None, ""),
    ],
)
def test_a_cell_is_shown_and_not_run(cell: str | float | None, text: str) -> None:
    """A formula is quoted, a control an escape; numbers round-trip and None is empty."""
    (row,) = csv.reader(io.StringIO(csv_text([["id", cell]])))
    assert row == ["id", text]
