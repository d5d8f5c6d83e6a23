"""The clock of the CPU, on a host clock that only goes on when it is told to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpubench_plugin.measure.clocks.base import Task
from gpubench_plugin.measure.clocks.host import CpuClock
from tests.support.fake_cuda import FakeHost


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


def spending(host: FakeHost, *ns: int) -> Callable[[], None]:
    """A step whose calls take these times in turn."""
    times = iter(ns)
    return lambda: host.spend(next(times))


def test_every_call_has_its_own_duration(host: FakeHost) -> None:
    """Three calls of different length give three durations, which add up to the block."""
    block = CpuClock(host.now).block(Task(step=spending(host, 10, 20, 30)), durations=3)
    assert pytest.approx([10e-9, 20e-9, 30e-9]) == list(block.durations_s)
    assert pytest.approx(60e-9) == block.length_s
    assert block.calls == 3


def test_grouped_calls_share_a_duration(host: FakeHost) -> None:
    """A duration of grouped calls is their mean."""
    block = CpuClock(host.now).block(
        Task(step=spending(host, 10, 20, 30, 40)), durations=2, calls_per_duration=2
    )
    assert pytest.approx([15e-9, 35e-9]) == list(block.durations_s)
    assert pytest.approx(100e-9) == block.length_s
    assert block.calls == 4


def test_setup_and_teardown_are_not_timed(host: FakeHost) -> None:
    """They run around every call, and neither durations nor the block's length hold them."""
    order: list[str] = []

    def noted(name: str, ns: int) -> Callable[[], None]:
        def step() -> None:
            order.append(name)
            host.spend(ns)

        return step

    task = Task(step=noted("step", 7), setup=noted("setup", 500), teardown=noted("teardown", 900))
    block = CpuClock(host.now).block(task, durations=2)
    assert order == ["setup", "step", "teardown"] * 2
    assert pytest.approx([7e-9, 7e-9]) == list(block.durations_s)
    assert pytest.approx(14e-9) == block.length_s


def test_only_short_calls_are_grouped() -> None:
    """From 5 µs on a call is timed alone; below, groups of about 50 µs are formed."""
    clock = CpuClock()
    assert [clock.group_size(s) for s in (1e-3, 5e-6, 4.9e-6, 30e-9)] == [1, 1, 11, 1667]


def test_the_first_call_is_timed_without_setup_and_teardown(host: FakeHost) -> None:
    """The first call's seconds are those of the step alone."""
    task = Task(step=spending(host, 3_000), setup=spending(host, 10), teardown=spending(host, 10))
    assert pytest.approx(3e-6) == CpuClock(host.now).time_single_call(task)
