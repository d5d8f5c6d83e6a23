"""Names that are likely slips for others."""

from __future__ import annotations

import pytest

from gpubench_plugin.results.near_miss import distance, near_miss


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("mian", "main"),
        ("mainn", "main"),
        ("man", "main"),
        ("mein", "main"),
        ("Main", "main"),
        ("relase-1.4", "release-1.4"),
        ("nightly_a100", "nightly-a100"),
    ],
)
def test_a_slip_is_a_near_miss(name: str, other: str) -> None:
    """One letter added, dropped, replaced or swapped; cases and separators do not count."""
    assert near_miss(name, ["zzz", other, "unlike"]) == other


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("main", "main"),
        ("main2", "main"),
        ("release-1.5", "release-1.4"),
        ("nightly-h100", "nightly-a100"),
        ("part-b", "part-a"),
        ("b", "a"),
        ("nightly", "main"),
        ("", "main"),
    ],
)
def test_another_name_is_none(name: str, other: str) -> None:
    """Other numbers and other letters of a list are meant."""
    assert near_miss(name, [other]) is None


@pytest.mark.parametrize(
    ("one", "two", "edits"),
    [("", "", 0), ("", "abc", 3), ("ab", "ba", 1), ("kitten", "sitting", 3), ("ca", "abc", 3)],
)
def test_distance_counts_edits(one: str, two: str, edits: int) -> None:
    """It is the same both ways."""
    assert distance(one, two) == distance(two, one) == edits
