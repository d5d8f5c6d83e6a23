"""Tests of lists, plurals, numbers, sizes and commits in words."""

from __future__ import annotations

import pytest

from gpubench_plugin.environment import (
    byte_size,
    counted,
    listed,
    plural,
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
