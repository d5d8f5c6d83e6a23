"""Whose turn it is, and how long it may still take."""

from __future__ import annotations

from gpubench_plugin.cli.ab.schedule import estimate_remaining_s, side_order


def test_sides_begin_in_turns() -> None:
    """Each side goes first in every second pair; the seed says which one begins."""
    assert [side_order(pair, 0)[0] for pair in range(4)] == ["base", "head", "base", "head"]
    assert [side_order(pair, 7)[0] for pair in range(4)] == ["head", "base", "head", "base"]
    assert all(set(side_order(pair, 3)) == {"base", "head"} for pair in range(4))


def test_the_remaining_time_is_that_of_the_latest_launches() -> None:
    """What is left is estimated from each side's last two launches, with the pair at hand."""
    seconds = {"base": [100.0, 2.0, 4.0], "head": [6.0]}
    assert estimate_remaining_s(pairs_left=2, seconds=seconds, running=["head"]) == 2 * 9 + 6


def test_nothing_is_estimated_before_both_sides_ran() -> None:
    """The first two launches show no remaining time."""
    assert (
        estimate_remaining_s(pairs_left=15, seconds={"base": [1.0], "head": []}, running=[]) is None
    )
