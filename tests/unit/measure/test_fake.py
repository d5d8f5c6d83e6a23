"""The fake device keeps to the rules of a real one; the tests of the CUDA clocks rest on it."""

from __future__ import annotations

import pytest

from tests.support.fake_cuda import SIDE, FakeCuda, FakeHost


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


def test_streams_run_beside_each_other(device: FakeCuda) -> None:
    """Work of one does not delay another's, waiting for the device is for both."""
    device.launch(enqueue_ns=0, device_ns=500)
    device.launch(enqueue_ns=0, device_ns=800, stream=SIDE)
    assert (device.free_ns, device.idle_ns) == (500, 800)
    device.synchronize()
    assert device.host.time_ns == 800


def test_a_stream_waits_for_another_if_told_to(device: FakeCuda) -> None:
    """Its later work begins when the other's is done."""
    device.launch(enqueue_ns=0, device_ns=800, stream=SIDE)
    device.wait_for(SIDE)
    device.launch(enqueue_ns=0, device_ns=100)
    assert device.free_ns == 900


def test_an_event_can_take_time_of_the_device() -> None:
    """It is passed before that, and what follows is later."""
    device = FakeCuda(FakeHost(), record_ns=1500)
    start, end = device.event(), device.event()
    for event in (start, end):
        device.launch(enqueue_ns=0, device_ns=100_000)
        event.record()
    end.synchronize()
    assert start.elapsed_time(end) == pytest.approx(0.1015)


def test_a_spin_is_as_long_as_the_clock_makes_it() -> None:
    """The same cycles take longer on a device that has lowered its clock."""
    device = FakeCuda(FakeHost(), cycles_per_ns=lambda now_ns: 1.0 if now_ns < 1000 else 2.0)
    device.spin(2000)
    assert device.spun_ns == 2000
    device.spin(2000)
    assert device.spun_ns == 3000
