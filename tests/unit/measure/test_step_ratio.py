from __future__ import annotations

from functools import partial

import pytest

from gpubench_plugin.measure.clocks.host import CpuClock
from gpubench_plugin.measure.paired_turns import time_ratio
from tests.support.fake_cuda import FakeHost


def test_the_ratio_of_two_steps() -> None:
    """A step of three microseconds takes three times as long as one of one."""
    host = FakeHost()
    clock = CpuClock(one_thread=False, now=host.now)
    slow, fast = partial(host.spend, 3000), partial(host.spend, 1000)
    assert time_ratio(slow, fast, clock=clock) == pytest.approx(3)


def test_the_first_turn_does_not_count() -> None:
    """Calls that are slow at first change nothing."""
    host, calls = FakeHost(), iter(range(1000))
    clock = CpuClock(one_thread=False, now=host.now)

    def slow_at_first() -> None:
        host.spend(1_000_000 if next(calls) < 4 else 1000)

    assert time_ratio(slow_at_first, partial(host.spend, 1000), clock=clock) == pytest.approx(1)
