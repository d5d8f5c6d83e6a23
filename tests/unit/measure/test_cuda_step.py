"""The clock of CUDA steps, on a device that runs on paper."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpubench_plugin.measure.clocks import CudaStepClock, Step, Task
from tests.support.fake_cuda import FakeCuda, FakeHost

US = 1000
MS = 1_000_000


@pytest.fixture
def device() -> FakeCuda:
    return FakeCuda(FakeHost())


@pytest.fixture
def clock(device: FakeCuda) -> CudaStepClock:
    return CudaStepClock(device, device.host.now)


def launching(device: FakeCuda, *, enqueue_ns: int, device_ns: int, launches: int = 1) -> Step:
    """A step that hands over so many launches of this kind."""

    def step() -> None:
        for _ in range(launches):
            device.launch(enqueue_ns=enqueue_ns, device_ns=device_ns)

    return step


def then(step: Step, end: Callable[[], None]) -> Step:
    """A step with an end of its own."""

    def both() -> None:
        step()
        end()

    return both


def flags(clock: CudaStepClock, step: Step, *, durations: int = 50) -> tuple[str, ...]:
    """The flags after calibration and one block."""
    task = Task(step=step)
    clock.calibrate(task)
    return clock.flags(clock.block(task, durations=durations).evidence)


def test_durations_are_the_devices(device: FakeCuda, clock: CudaStepClock) -> None:
    """A step of 2 ms on the device that is handed over in 100 µs lasts 2 ms."""
    step = launching(device, enqueue_ns=100 * US, device_ns=2 * MS)
    block = clock.block(Task(step=step), durations=4)
    assert pytest.approx([2.1e-3, 2e-3, 2e-3, 2e-3], rel=1e-3) == list(block.durations_s)
    assert pytest.approx(8.1e-3, rel=1e-3) == block.length_s
    assert pytest.approx(1e-4, rel=1e-3) == block.evidence["enqueue_s"]
    assert block.calls == 4


def test_a_block_waits_twice_only(device: FakeCuda, clock: CudaStepClock) -> None:
    """The host waits before the block and after it, never in between."""
    clock.block(Task(step=launching(device, enqueue_ns=US, device_ns=10 * US)), durations=100)
    assert device.waits == 2


def test_events_are_used_again(
    device: FakeCuda, clock: CudaStepClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second block of the same size makes no new events."""
    made: list[object] = []
    real = device.event
    monkeypatch.setattr(device, "event", lambda: made.append(None) or real())
    task = Task(step=launching(device, enqueue_ns=US, device_ns=10 * US))
    clock.block(task, durations=7)
    assert len(made) == 8
    clock.block(task, durations=7)
    clock.block(task, durations=3)
    assert len(made) == 8


def test_grouped_calls_share_a_duration(device: FakeCuda, clock: CudaStepClock) -> None:
    """Steps too short for the events are timed several between two of them."""
    step = launching(device, enqueue_ns=0, device_ns=5 * US)
    block = clock.block(Task(step=step), durations=3, calls_per_duration=10)
    assert pytest.approx([5e-6] * 3, rel=1e-2) == list(block.durations_s)
    assert block.calls == 30
    assert [clock.group_size(s) for s in (20e-6, 19e-6, 5e-6)] == [1, 3, 10]


def test_setup_and_teardown_are_not_timed(device: FakeCuda, clock: CudaStepClock) -> None:
    """Their work on the device lies outside the events, and outside the block's length."""
    apart = launching(device, enqueue_ns=10 * US, device_ns=7 * MS)
    task = Task(
        step=launching(device, enqueue_ns=US, device_ns=2 * MS), setup=apart, teardown=apart
    )
    block = clock.block(task, durations=3)
    assert pytest.approx([2e-3] * 3) == list(block.durations_s)
    assert pytest.approx(6e-3) == block.length_s


def test_the_first_call_includes_the_device(device: FakeCuda, clock: CudaStepClock) -> None:
    """The first call lasts until the device is done with it."""
    step = launching(device, enqueue_ns=US, device_ns=30 * MS)
    assert pytest.approx(30.001e-3) == clock.time_first_call(Task(step=step))


def test_a_starving_device_is_flagged(device: FakeCuda, clock: CudaStepClock) -> None:
    """Launches that cost the host more than the device make the step ``launch_bound``."""
    step = launching(device, enqueue_ns=10 * US, device_ns=2 * US, launches=100)
    assert flags(clock, step) == ("launch_bound",)


def test_a_busy_device_is_not_flagged(device: FakeCuda, clock: CudaStepClock) -> None:
    """A device with more to do than the host keeps it waiting is not launch-bound."""
    step = launching(device, enqueue_ns=10 * US, device_ns=20 * US, launches=100)
    assert flags(clock, step) == ()


def test_a_full_queue_is_no_starving_device(device: FakeCuda, clock: CudaStepClock) -> None:
    """A host that a full queue slows down to the device's pace is not taken for the slow one."""
    step = launching(device, enqueue_ns=4 * US, device_ns=20 * US, launches=600)
    handed_over_ns: list[int] = []

    def timed() -> None:
        start = clock.now()
        step()
        handed_over_ns.append(clock.now() - start)

    block = clock.block(Task(step=timed), durations=20)
    assert sum(handed_over_ns[5:]) * 1e-9 >= 0.95 * sum(block.durations_s[5:])
    assert flags(clock, step, durations=20) == ()


def test_a_step_that_reads_a_result_is_not_flagged(device: FakeCuda, clock: CudaStepClock) -> None:
    """A step that waits inside an operation, in its middle, is not called launch-bound."""
    forward = launching(device, enqueue_ns=10 * US, device_ns=200 * US, launches=10)
    update = launching(device, enqueue_ns=50 * US, device_ns=10 * US, launches=100)
    step = then(then(forward, device.item), update)
    assert flags(clock, step) == ()


def test_a_step_that_synchronises_is_not_flagged(device: FakeCuda, clock: CudaStepClock) -> None:
    """An explicit wait, of which torch reports nothing, is found out behind a spin."""
    work = launching(device, enqueue_ns=10 * US, device_ns=100 * US, launches=10)
    assert flags(clock, then(work, device.synchronize)) == ()


def test_the_devices_state_is_read_while_it_works(device: FakeCuda, clock: CudaStepClock) -> None:
    """A listener is called once per block, after the last launch and before the device is done."""
    step = launching(device, enqueue_ns=100 * US, device_ns=2 * MS)
    left_ns: list[int] = []
    clock.on_launched = lambda: left_ns.append(device.free_ns - device.host.time_ns)
    for task in (Task(step=step), Task(step=step, teardown=lambda: None)):
        block = clock.block(task, durations=4)
        assert pytest.approx(8e-3, rel=0.02) == block.length_s
    assert [7 * MS < ns < 8 * MS for ns in left_ns] == [True, True]


def test_a_clock_that_was_not_calibrated_raises_no_flag(
    device: FakeCuda, clock: CudaStepClock
) -> None:
    """Without the calibration nobody knows why the host takes as long as the device."""
    step = launching(device, enqueue_ns=10 * US, device_ns=2 * US, launches=100)
    assert clock.flags(clock.block(Task(step=step), durations=50).evidence) == ()


def test_calibration_makes_the_same_calls_for_every_step(device: FakeCuda) -> None:
    """Whatever the step does, three calls are made: ranks that differ stay in step."""
    short = launching(device, enqueue_ns=US, device_ns=US)
    for step in (
        short,
        then(short, device.item),
        then(short, device.synchronize),
        launching(device, enqueue_ns=10 * MS, device_ns=US),
    ):
        calls: list[str] = []
        task = Task(
            step=then(step, lambda calls=calls: calls.append("step")),
            setup=lambda calls=calls: calls.append("setup"),
            teardown=lambda calls=calls: calls.append("teardown"),
        )
        assert CudaStepClock(device, device.host.now).calibrate(task) == 3
        assert calls == ["setup", "step", "teardown"] * 3


def test_a_host_that_outlasts_the_spin_by_a_long_step_is_still_flagged(
    device: FakeCuda, clock: CudaStepClock
) -> None:
    """A launch-bound step too long to be tried behind a spin keeps its flag."""
    step = launching(device, enqueue_ns=10 * US, device_ns=2 * US, launches=3000)
    assert flags(clock, step, durations=4) == ("launch_bound",)


def test_first_duration_has_nothing_of_the_host_in_it(
    device: FakeCuda, clock: CudaStepClock
) -> None:
    """After calibration a block begins on a busy device, as every later step does."""
    step = launching(device, enqueue_ns=150 * US, device_ns=5 * MS)
    clock.calibrate(Task(step=step))
    for task in (Task(step=step), Task(step=step, setup=lambda: None)):
        block = clock.block(task, durations=4)
        assert pytest.approx([5e-3] * 4, rel=1e-3) == list(block.durations_s)
