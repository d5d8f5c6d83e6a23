"""What counts against a limit and what does not, by a clock that is put forward by hand."""

from __future__ import annotations

import math

import pytest

from gpubench_plugin.system.timeout_clock import TimeoutClock, poll_interval_s, wait_until


class Hand:
    """A manual clock."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def naps(self, clock: TimeoutClock, until: float, late_s: float = 0.0) -> int:
        """Wait as waiting loops do, each time this late; how often it was."""
        count = 0
        while (left := clock.remaining(until)) > 0:
            self.now_s += poll_interval_s(left) + late_s
            count += 1
        return count


@pytest.fixture
def hand() -> Hand:
    """The hand of a clock."""
    return Hand()


@pytest.fixture
def clock(hand: Hand) -> TimeoutClock:
    """The clock."""
    return TimeoutClock(now=lambda: hand.now_s)


def test_time_awake_counts_in_full(hand: Hand, clock: TimeoutClock) -> None:
    """Whoever wakes up in time is given up when the limit is over, to the twentieth."""
    hand.naps(clock, 600.0)
    assert hand.now_s - 1000.0 == pytest.approx(600.0)


@pytest.mark.parametrize(("limit_s", "lost_s"), [(600.0, 5.0), (20.0, 1.0)])
def test_stop_counts_as_one_nap(
    hand: Hand, clock: TimeoutClock, limit_s: float, lost_s: float
) -> None:
    """However long this process was stopped, the limit loses a twentieth, five seconds at most."""
    clock.remaining(limit_s)
    hand.now_s += 40_000.0
    assert clock.remaining(limit_s) == pytest.approx(limit_s - lost_s)


def test_hang_is_found_although_every_nap_ends_late(hand: Hand, clock: TimeoutClock) -> None:
    """A busy machine wakes this process up seconds too late each time; each time counts."""
    assert hand.naps(clock, 600.0, late_s=3.0) < 250


def test_limit_may_have_no_end(hand: Hand, clock: TimeoutClock) -> None:
    """An infinite time leaves an infinite time, and naps that end."""
    assert (clock.remaining(math.inf), poll_interval_s(math.inf)) == (math.inf, 5.0)
    hand.now_s += 1e9
    assert clock.remaining(math.inf) == math.inf


def test_waiting_asks_until_it_is_true_or_time_is_up() -> None:
    """The answer says which; the last question comes after the end."""
    answers = iter([False, False, True])
    assert wait_until(lambda: next(answers), lambda: 1.0)
    assert not wait_until(lambda: False, lambda: 0.0)
    answers = iter([False, True])
    assert wait_until(lambda: next(answers), lambda: 0.0)
