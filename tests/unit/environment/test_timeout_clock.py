"""What counts against a limit and what does not, by a clock that is put forward by hand."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from torch import distributed as dist

from gpubench_plugin.environment import timeout_clock
from gpubench_plugin.environment.timeout_clock import TimeoutClock, is_stopped, poll_interval_s
from gpubench_plugin.launchers.torchrun.store import OutcomeExchange
from gpubench_plugin.ranks.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Hand:
    """A manual clock, and whether another process is stopped."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.stopped = False

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
    return TimeoutClock(now=lambda: hand.now_s, stopped=lambda: hand.stopped)


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


def test_time_of_others_that_are_stopped_does_not_count(hand: Hand, clock: TimeoutClock) -> None:
    """What is waited for cannot come; once it goes on, so does the clock."""
    clock.remaining(600.0)
    hand.stopped = True
    for _ in range(10):
        hand.now_s += 5.0
        assert clock.remaining(600.0) == 600.0
    hand.stopped = False
    hand.now_s += 2.0
    assert clock.remaining(600.0) == 598.0


def test_others_that_are_never_continued_are_a_hang(hand: Hand, clock: TimeoutClock) -> None:
    """An hour after they were stopped the time begins to count."""
    hand.stopped = True
    hand.naps(clock, 600.0)
    assert hand.now_s - 1000.0 == pytest.approx(timeout_clock.MAX_STOPPED_S + 600.0, abs=6.0)


def test_limit_may_have_no_end(hand: Hand, clock: TimeoutClock) -> None:
    """An infinite time leaves an infinite time, and naps that end."""
    assert (clock.remaining(math.inf), poll_interval_s(math.inf)) == (math.inf, 5.0)
    hand.now_s += 1e9
    assert clock.remaining(math.inf) == math.inf


@pytest.fixture
def asleep() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def until(holds: Callable[[], bool]) -> None:
    """Return once it `holds`."""
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.slow
def test_state_of_a_process_tells_whether_it_is_stopped(asleep: subprocess.Popen[bytes]) -> None:
    """From SIGSTOP to SIGCONT it is; one that is gone is not."""
    assert not is_stopped(asleep.pid)
    asleep.send_signal(signal.SIGSTOP)
    until(lambda: is_stopped(asleep.pid))
    asleep.send_signal(signal.SIGCONT)
    until(lambda: not is_stopped(asleep.pid))
    asleep.kill()
    asleep.wait()
    assert not is_stopped(asleep.pid)


@pytest.mark.slow
@pytest.mark.parametrize(("place", "stands"), [("here", True), ("another host", False)])
def test_clock_of_torchruns_ranks_waits_for_those_of_its_host(
    asleep: subprocess.Popen[bytes], place: str, stands: bool
) -> None:
    """A rank that is stopped here stands in the process table; of another host nothing is known."""
    store = dist.HashStore()
    zero, one = (OutcomeExchange(World(rank=rank, size=2, local_size=2), store) for rank in (0, 1))
    zero.publish_process(os.getpid(), "here")
    one.publish_process(asleep.pid, place)
    zero.read_local_processes("here")
    asleep.send_signal(signal.SIGSTOP)
    until(lambda: is_stopped(asleep.pid))

    clock = zero.clock()
    time.sleep(0.05)

    assert (clock.now() == 0.0) == stands
