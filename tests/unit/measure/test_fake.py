"""The fake device keeps to the rules of a real one; the tests of the CUDA clocks rest on it."""

from __future__ import annotations

import pytest

from tests.support.fake_cuda import FakeCuda, FakeHost


@pytest.fixture
def device() -> FakeCuda:
    return FakeCuda(FakeHost())


def test_the_host_runs_ahead_of_the_device(device: FakeCuda) -> None:
    """A launch costs the host its enqueueing only; synchronising waits for the rest."""
    device.launch(enqueue_ns=5, device_ns=100)
    assert device.host.time_ns == 5
    device.synchronize()
    assert device.host.time_ns == 105


def test_work_waits_for_the_work_before_it(device: FakeCuda) -> None:
    """Two launches run one after the other, from the moment the first was handed over."""
    device.launch(enqueue_ns=5, device_ns=100)
    device.launch(enqueue_ns=5, device_ns=100)
    device.synchronize()
    assert device.host.time_ns == 205


def test_a_full_queue_holds_the_host_up(device: FakeCuda) -> None:
    """With two entries queued, the third launch waits until the first is done."""
    device.depth = 2
    for _ in range(3):
        device.launch(enqueue_ns=5, device_ns=100)
    assert device.host.time_ns == 105


def test_events_take_the_time_of_the_device(device: FakeCuda) -> None:
    """The time between two events is that of the work between them, in milliseconds."""
    start, end = device.event(), device.event()
    start.record()
    device.launch(enqueue_ns=0, device_ns=2_000_000)
    end.record()
    assert not end.query()
    device.synchronize()
    assert end.query()
    assert start.elapsed_time(end) == 2.0


def test_an_event_not_passed_yet_has_no_time(device: FakeCuda) -> None:
    """Asking too early is an error, as it is with a real event."""
    start, end = device.event(), device.event()
    start.record()
    device.launch(enqueue_ns=0, device_ns=1000)
    end.record()
    with pytest.raises(RuntimeError, match="not come past"):
        start.elapsed_time(end)
