"""The clock of CUDA steps, on a device that runs on paper."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from gpubench_plugin.measure.clocks.base import Step, Task
from gpubench_plugin.measure.clocks.cuda_step import CudaStepClock
from gpubench_plugin.measure.clocks.step_cost import counts
from tests.support.fake_cuda import SIDE, FakeCuda, FakeHost

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
    assert [clock.group_size(s) for s in (1e-3, 9e-4, 20e-6, 5e-6)] == [1, 2, 50, 200]


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
    assert pytest.approx(30.001e-3) == clock.time_single_call(Task(step=step))


def launches(enqueue_us: float, device_us: float, number: int) -> Callable[[FakeCuda], Step]:
    return lambda device: launching(
        device, enqueue_ns=round(enqueue_us * US), device_ns=round(device_us * US), launches=number
    )


def reading(device: FakeCuda) -> Step:
    """A step that waits inside an operation, in its middle."""
    forward = launching(device, enqueue_ns=10 * US, device_ns=200 * US, launches=10)
    update = launching(device, enqueue_ns=50 * US, device_ns=10 * US, launches=100)
    return then(then(forward, device.item), update)


def synchronising(number: int) -> Callable[[FakeCuda], Step]:
    return lambda device: then(launches(10, 100, number)(device), device.synchronize)


BOUND = ("launch_bound",)


@pytest.mark.parametrize(
    ("step_of", "durations", "flags"),
    [
        pytest.param(launches(10, 2, 100), 50, BOUND, id="starving device"),
        pytest.param(launches(10, 20, 100), 50, (), id="busy device"),
        pytest.param(launches(4, 20, 600), 20, (), id="full queue"),
        pytest.param(launches(12, 15, 3000), 4, (), id="queue filled by the lead"),
        pytest.param(launches(18, 15, 3000), 4, BOUND, id="too slow for a filled queue"),
        pytest.param(launches(10, 2, 3000), 4, BOUND, id="outlasts the spin"),
        pytest.param(launches(10, 2, 50_000), 4, BOUND, id="fills the queue behind any spin"),
        pytest.param(launches(100, 5, 10), 50, BOUND, id="no work elsewhere"),
        pytest.param(reading, 50, (), id="reads a result"),
        pytest.param(synchronising(10), 50, (), id="synchronises"),
        pytest.param(synchronising(500), 4, (), id="synchronises later than a queue fills"),
        pytest.param(launches(5000, 1, 1), 4, (), id="a copy of the host"),
        pytest.param(launches(200_000, 1, 1), 4, (), id="a long copy of the host"),
        pytest.param(lambda d: partial(d.host.spend, 5 * MS), 4, (), id="only the host"),
        pytest.param(lambda d: partial(d.host.spend, 200 * MS), 4, (), id="only the host, long"),
    ],
)
def test_steps_are_flagged_for_their_launches_alone(
    device: FakeCuda,
    clock: CudaStepClock,
    step_of: Callable[[FakeCuda], Step],
    durations: int,
    flags: tuple[str, ...],
) -> None:
    """Not for waits, a full queue, or work of the host: reading, writing or sleeping."""
    task = Task(step=step_of(device))
    clock.calibrate(task)
    assert clock.flags(clock.block(task, durations=durations).evidence) == flags


def test_the_devices_state_is_read_while_it_works(device: FakeCuda, clock: CudaStepClock) -> None:
    """A listener is called once per block, after the last launch and before the device is done."""
    step = launching(device, enqueue_ns=100 * US, device_ns=2 * MS)
    left_ns: list[int] = []
    clock.on_launched = lambda: left_ns.append(device.free_ns - device.host.time_ns)
    for task in (Task(step=step), Task(step=step, teardown=lambda: None)):
        block = clock.block(task, durations=4)
        assert pytest.approx(8e-3, rel=0.02) == block.length_s
    assert [7 * MS < ns < 8 * MS for ns in left_ns] == [True, True]


def test_reading_the_devices_state_is_not_timed(device: FakeCuda, clock: CudaStepClock) -> None:
    """What a listener takes, after which the device may be done, is no work of other streams."""
    step = launching(device, enqueue_ns=100 * US, device_ns=5 * US)
    clock.on_launched = lambda: device.host.spend(10 * MS)
    block = clock.block(Task(step=step), durations=4)
    assert pytest.approx(4e-4, rel=0.02) == block.length_s
    assert clock.flags(block.evidence) == ()


def test_a_clock_that_was_not_calibrated_raises_no_flag(
    device: FakeCuda, clock: CudaStepClock
) -> None:
    """Without the calibration nobody knows why the host takes as long as the device."""
    step = launching(device, enqueue_ns=10 * US, device_ns=2 * US, launches=100)
    assert clock.flags(clock.block(Task(step=step), durations=50).evidence) == ()


@pytest.mark.parametrize("setup", [None, lambda: None])
@pytest.mark.parametrize(("host_ms", "device_ms"), [(500, 1000), (1000, 500)])
def test_blocks_of_costly_steps_go_on_as_their_warm_up_did(
    device: FakeCuda,
    clock: CudaStepClock,
    host_ms: int,
    device_ms: int,
    setup: Callable[[], None] | None,
) -> None:
    """Without calls to calibrate, even a block of one call takes what a later call takes."""
    step = launching(device, enqueue_ns=host_ms * MS, device_ns=device_ms * MS)
    task = Task(step=step, setup=setup)
    assert pytest.approx([1.5, 1.0, 1.0]) == list(clock.block(task, durations=3).durations_s)
    clock.calibrate(task, may_call=False)
    for durations in (1, 3):
        block = clock.block(task, durations=durations)
        assert pytest.approx([1.0] * durations, rel=1e-3) == list(block.durations_s)
        assert clock.flags(block.evidence) == ()


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
        CudaStepClock(device, device.host.now).calibrate(task)
        assert calls == ["setup", "step", "teardown"] * CudaStepClock.calibration_calls


def test_first_duration_has_nothing_of_the_host_in_it(
    device: FakeCuda, clock: CudaStepClock
) -> None:
    """After calibration a block begins on a busy device, as every later step does."""
    step = launching(device, enqueue_ns=150 * US, device_ns=5 * MS)
    clock.calibrate(Task(step=step))
    for task in (Task(step=step), Task(step=step, setup=lambda: None)):
        block = clock.block(task, durations=4)
        assert pytest.approx([5e-3] * 4, rel=1e-3) == list(block.durations_s)


def test_the_spin_is_measured_again_after_the_warm_up(
    device: FakeCuda, clock: CudaStepClock
) -> None:
    """Calibrating follows a clock that rose: no block begins behind a spin of another length."""
    device.cycles_per_ns = lambda now_ns: 0.345 if now_ns < 50 * MS else 1.98
    task = Task(step=launching(device, enqueue_ns=500 * US, device_ns=5 * MS))
    clock.calibrate(task)
    device.host.spend(50 * MS)
    clock.calibrate(task)
    device.spins, device.spun_ns = 0, 0
    clock.block(task, durations=4)
    assert pytest.approx(500 * US, rel=0.01) == device.spun_ns / device.spins


def beside(device: FakeCuda, *, awaited: bool = False) -> Step:
    """A millisecond of work, beside which a side stream works for three."""

    def step() -> None:
        device.launch(enqueue_ns=10 * US, device_ns=MS)
        device.launch(enqueue_ns=10 * US, device_ns=3 * MS, stream=SIDE)
        if awaited:
            device.wait_for(SIDE)

    return step


@pytest.mark.parametrize(("awaited", "flags"), [(False, ("elsewhere",)), (True, ())])
def test_work_elsewhere_is_in_the_durations(
    device: FakeCuda, clock: CudaStepClock, awaited: bool, flags: tuple[str, ...]
) -> None:
    """It is flagged unless the step's own stream waits for it, whose events have it then."""
    block = clock.block(Task(step=beside(device, awaited=awaited)), durations=10)
    assert pytest.approx([3e-3] * 10, rel=0.01) == list(block.durations_s)
    assert pytest.approx(30e-3, rel=0.01) == block.length_s
    assert clock.flags(block.evidence) == flags


@pytest.mark.parametrize("left_us", [40, 400])
def test_little_work_elsewhere_is_left_out(
    device: FakeCuda, clock: CudaStepClock, left_us: int
) -> None:
    """Below 50 µs, or 5% of a block, the events are taken as they are."""
    device.launch(enqueue_ns=0, device_ns=0)

    def step() -> None:
        device.launch(enqueue_ns=0, device_ns=left_us * US)
        device.launch(enqueue_ns=0, device_ns=left_us * US * 102 // 100, stream=SIDE)

    block = clock.block(Task(step=step), durations=4)
    assert pytest.approx([left_us * 1e-6] * 4, rel=1e-3) == list(block.durations_s)
    assert clock.flags(block.evidence) == ()


def test_work_elsewhere_beside_a_setup_is_waited_for(
    device: FakeCuda, clock: CudaStepClock
) -> None:
    """After calibration every call is, so that setup and teardown hide nothing of it."""
    task = Task(step=beside(device), setup=launching(device, enqueue_ns=10 * US, device_ns=7 * MS))
    clock.calibrate(task)
    block = clock.block(task, durations=10)
    assert pytest.approx([3e-3] * 10, rel=0.01) == list(block.durations_s)
    assert clock.flags(block.evidence) == ("elsewhere",)


@pytest.mark.parametrize("is_calibrated", [True, False])
def test_a_block_has_the_wait_for_what_other_streams_do_for_the_next_call(
    device: FakeCuda, clock: CudaStepClock, is_calibrated: bool
) -> None:
    """A step that waits for the copy started by the one before takes as long as that, always."""

    def step() -> None:
        device.wait_for(SIDE)
        device.launch(enqueue_ns=10 * US, device_ns=8 * MS, stream=SIDE)
        device.launch(enqueue_ns=10 * US, device_ns=5 * MS)

    task = Task(step=step)
    for durations in (1, 7):
        clock.block(task, durations=durations)
    clock.calibrate(task, may_call=is_calibrated)
    block = clock.block(task, durations=7)
    assert pytest.approx([8e-3] * 7, rel=5e-3) == list(block.durations_s)
    assert pytest.approx(56e-3, rel=1e-3) == block.length_s
    assert clock.flags(block.evidence) == ()


def test_launches_that_vary_are_flagged_by_their_median(
    device: FakeCuda, clock: CudaStepClock
) -> None:
    """Two launches at the begin of a block that happen to be short hide no starving device."""
    launches = [3 * MS] * 6 + [2 * MS] * 2 + [3 * MS] * 8
    step = launching(device, enqueue_ns=US, device_ns=MS)
    task = Task(step=then(step, lambda: device.host.spend(launches.pop(0))))
    clock.calibrate(task)
    assert clock.flags(clock.block(task, durations=10).evidence) == ("launch_bound",)


def test_launches_behind_the_work_of_a_setup_are_not_flagged(
    device: FakeCuda, clock: CudaStepClock
) -> None:
    """A device that is busy with the setup meanwhile does not wait for the step's launches."""
    step = launching(device, enqueue_ns=10 * US, device_ns=2 * US, launches=40)
    task = Task(step=step, setup=launching(device, enqueue_ns=10 * US, device_ns=MS))
    clock.calibrate(task)
    block = clock.block(task, durations=10)
    assert pytest.approx([80e-6] * 10) == list(block.durations_s)
    assert clock.flags(block.evidence) == ()


@pytest.mark.parametrize(
    ("outlasting_s", "timed_s", "expected"),
    [
        (49e-6, 1e-4, False),
        (51e-6, 1e-4, True),
        (51e-6, 1e-3, True),
        (49e-3, 1.0, False),
        (51e-3, 1.0, True),
    ],
)
def test_other_streams_count_from_five_percent_and_50_us_on(
    outlasting_s: float, timed_s: float, *, expected: bool
) -> None:
    """Less is what waiting costs the host."""
    assert counts(outlasting_s, timed_s) is expected


def test_what_a_teardown_does_elsewhere_is_not_the_steps(
    device: FakeCuda, clock: CudaStepClock
) -> None:
    """Its copies on a side stream that nobody waits for are neither timed nor flagged."""
    task = Task(
        step=launching(device, enqueue_ns=10 * US, device_ns=MS),
        teardown=lambda: device.launch(enqueue_ns=10 * US, device_ns=3 * MS, stream=SIDE),
    )
    clock.calibrate(task)
    block = clock.block(task, durations=10)
    assert pytest.approx([1e-3] * 10, rel=0.02) == list(block.durations_s)
    assert clock.flags(block.evidence) == ()


def test_a_block_after_which_the_host_returns_late_works_nowhere_else(
    device: FakeCuda, clock: CudaStepClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delay after a single block, as by a thread of Python that computes, is not the step's."""
    task = Task(step=launching(device, enqueue_ns=10 * US, device_ns=5 * MS))
    clock.calibrate(task)
    clock.block(task, durations=10)
    late_after = device.waits + 2
    wait = device.synchronize

    def synchronize() -> None:
        wait()
        if device.waits == late_after:
            device.host.spend(5 * MS)

    monkeypatch.setattr(device, "synchronize", synchronize)
    block = clock.block(task, durations=10)
    assert device.waits == late_after
    assert pytest.approx([5e-3] * 10, rel=1e-3) == list(block.durations_s)
    assert clock.flags(block.evidence) == ()


@pytest.mark.parametrize("rate_after", [0.6, 1.6])
def test_a_spin_follows_a_clock_that_changes_between_the_blocks(
    device: FakeCuda, clock: CudaStepClock, rate_after: float
) -> None:
    """Its length is wrong in the first block after the change only."""

    def step() -> None:
        device.host.spend(4 * MS)
        device.launch(enqueue_ns=10 * US, device_ns=3 * MS)

    task = Task(step=step)
    clock.calibrate(task)
    changed_ns = device.host.time_ns
    device.cycles_per_ns = lambda now_ns: 2.0 * (rate_after if now_ns > changed_ns else 1.0)
    clock.block(task, durations=10)
    block = clock.block(task, durations=10)
    assert pytest.approx([4.01e-3] * 10, rel=1e-3) == list(block.durations_s)


def test_long_work_elsewhere_counts_also_in_a_single_block(
    device: FakeCuda, clock: CudaStepClock
) -> None:
    """No late return from waiting takes 100 ms; a stream that does is flagged where it is."""
    side_ns = [0] * 17 + [100 * MS] + [0] * 9

    def step() -> None:
        device.launch(enqueue_ns=10 * US, device_ns=MS)
        device.launch(enqueue_ns=10 * US, device_ns=side_ns.pop(0), stream=SIDE)

    task = Task(step=step)
    clock.calibrate(task)
    clock.block(task, durations=10)
    block = clock.block(task, durations=10)
    assert clock.flags(block.evidence) == ("elsewhere",)
