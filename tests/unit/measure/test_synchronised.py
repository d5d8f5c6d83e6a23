"""The clock of devices on which the host waits at every boundary."""

from __future__ import annotations

import pytest

from gpubench_plugin.measure.clocks.base import Task
from gpubench_plugin.measure.clocks.host import SynchronisedClock
from tests.support.fake_cuda import FakeCuda, FakeHost

US = 1000
MS = 1_000_000


@pytest.fixture
def device() -> FakeCuda:
    return FakeCuda(FakeHost())


@pytest.fixture
def clock(device: FakeCuda) -> SynchronisedClock:
    return SynchronisedClock(device.synchronize, timer="paper", now=device.host.now)


def test_a_duration_is_a_group_that_the_device_has_finished(
    device: FakeCuda, clock: SynchronisedClock
) -> None:
    """Ten calls of 2 ms on the device make one duration of 2 ms per call, and one wait."""
    task = Task(step=lambda: device.launch(enqueue_ns=US, device_ns=2 * MS))
    block = clock.block(task, durations=3, calls_per_duration=10)
    assert pytest.approx([2e-3] * 3, rel=1e-3) == list(block.durations_s)
    assert pytest.approx(60e-3, rel=1e-3) == block.length_s
    assert (block.calls, device.waits) == (30, 4)


def test_setup_and_teardown_are_not_timed(device: FakeCuda, clock: SynchronisedClock) -> None:
    """What a setup leaves to the device is waited for before the time is taken."""
    apart = lambda: device.launch(enqueue_ns=US, device_ns=9 * MS)  # noqa: E731 # a step, no more
    task = Task(
        step=lambda: device.launch(enqueue_ns=US, device_ns=2 * MS), setup=apart, teardown=apart
    )
    block = clock.block(task, durations=2)
    assert pytest.approx([2.001e-3] * 2) == list(block.durations_s)
    assert pytest.approx(4.002e-3) == block.length_s


def test_calls_are_grouped_until_the_wait_is_small(clock: SynchronisedClock) -> None:
    """Calls shorter than 50 ms share a wait."""
    assert [clock.group_size(s) for s in (0.05, 0.049, 0.001)] == [1, 2, 50]
