"""Small pictures of numbers."""

from __future__ import annotations

from gpubench_plugin.reports.text import ASCII, UNICODE, evenly_chosen, sparkline


def test_the_least_is_low_and_the_greatest_high() -> None:
    """With a mark before each new level; in ASCII for an ASCII terminal."""
    assert sparkline([1.0, 2.0, 3.0], UNICODE) == "▁▅█"
    assert sparkline([1.0, 2.0, 3.0], ASCII, marks=[1]) == "0|47"
    assert sparkline([], UNICODE) == ""


def test_noise_is_no_mountain() -> None:
    """The scale covers at least one per cent; equal values are a flat line."""
    assert sparkline([1.0, 1.0001, 1.0], ASCII) in {"343", "333", "444"}
    assert len(set(sparkline([2.0] * 5, UNICODE))) == 1
    assert len(set(sparkline([0.0] * 5, UNICODE))) == 1


def test_more_values_than_columns_are_thinned_evenly() -> None:
    """The first and the last stay; few values stay as they are."""
    assert evenly_chosen([*range(100)], 4) == [0, 33, 66, 99]
    assert evenly_chosen([1.0, 2.0], 4) == [1.0, 2.0]
    assert evenly_chosen([1.0, 2.0, 3.0], 0) == [1.0, 3.0]
