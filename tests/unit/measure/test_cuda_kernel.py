"""The clock of CUDA kernels, on a device that runs on paper."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from gpubench_plugin.measure.clocks.base import Step, Task
from gpubench_plugin.measure.clocks.cuda_kernel import CudaKernelClock
from tests.support.fake_cuda import CURRENT, SIDE, FakeCuda, FakeHost

US = 1000


@pytest.fixture
def device() -> FakeCuda:
    return FakeCuda(FakeHost())


@pytest.fixture
def clock(device: FakeCuda) -> CudaKernelClock:
    """With a hot cache."""
    return CudaKernelClock(device, now=device.host.now)


def kernel(device: FakeCuda, *, hot_ns: int, cold_ns: int = 0) -> Step:
    """A kernel whose launch costs 8 µs, slower on a cache that was overwritten."""

    def step() -> None:
        duration = cold_ns if device.cache_overwritten else hot_ns
        device.cache_overwritten = False
        device.launch(enqueue_ns=8 * US, device_ns=duration)

    return step


def test_the_launch_is_not_in_the_duration(device: FakeCuda, clock: CudaKernelClock) -> None:
    """Kernels of 3 µs with launches of 8 µs last 3 µs, because they queue behind a spin."""
    task = Task(step=kernel(device, hot_ns=3 * US))
    block = clock.block(task, durations=3, calls_per_duration=10)
    assert pytest.approx([3e-6] * 3) == list(block.durations_s)
    assert pytest.approx(90e-6) == block.length_s
    assert clock.flags(block.evidence) == ()


@pytest.mark.parametrize(
    ("calls_per_duration", "durations", "bursts"),
    [(1, 128, 1), (1, 300, 3), (10, 30, 3), (128, 2, 2), (500, 2, 2)],
)
def test_at_most_128_launches_wait_behind_a_spin(
    device: FakeCuda, clock: CudaKernelClock, calls_per_duration: int, durations: int, bursts: int
) -> None:
    """A block is run in bursts, each behind a spin of its own; a larger group is a burst."""
    task = Task(step=kernel(device, hot_ns=30 * US))
    clock.block(task, durations=1)
    device.spins = 0
    block = clock.block(task, durations=durations, calls_per_duration=calls_per_duration)
    assert bursts == device.spins
    assert durations == len(block.durations_s)
    assert durations * calls_per_duration == block.calls


@pytest.mark.parametrize(("cache", "seconds"), [("cold", 45e-6), ("hot", 30e-6)])
def test_cold_kernels_find_an_overwritten_cache(
    device: FakeCuda, cache: Literal["hot", "cold"], seconds: float
) -> None:
    """Cold, every launch follows a write over the cache that is not in its duration."""
    clock = CudaKernelClock(device, cache=cache, now=device.host.now)
    task = Task(step=kernel(device, hot_ns=30 * US, cold_ns=45 * US))
    block = clock.block(task, durations=40)
    assert pytest.approx([seconds] * 40) == list(block.durations_s)
    assert clock.timer == f"cuda_kernel_{cache}"


def test_only_short_hot_kernels_are_grouped(device: FakeCuda) -> None:
    """Below 1 ms several launches share a duration, at most 512; a cold one is always alone."""
    hot, cold = CudaKernelClock(device), CudaKernelClock(device, cache="cold")
    assert [hot.group_size(s) for s in (1e-3, 9e-4, 5e-6, 1e-7)] == [1, 2, 200, 512]
    assert [cold.group_size(s) for s in (1e-3, 9e-4, 5e-6, 1e-7)] == [1, 1, 1, 1]


def test_a_spin_grows_with_the_launches(device: FakeCuda, clock: CudaKernelClock) -> None:
    """A step slow to hand over is late at first only: the next spin is long enough."""

    def slow() -> None:
        device.launch(enqueue_ns=400 * US, device_ns=30 * US)

    task = Task(step=slow)
    assert clock.flags(clock.block(task, durations=32).evidence) == ("launch_bound",)
    assert clock.flags(clock.block(task, durations=32).evidence) == ()


def test_a_short_last_burst_does_not_shorten_the_next_spin(
    device: FakeCuda, clock: CudaKernelClock
) -> None:
    """After a burst of one launch a full burst still waits behind its spin."""
    task = Task(step=kernel(device, hot_ns=30 * US))
    clock.block(task, durations=33)
    assert clock.flags(clock.block(task, durations=32).evidence) == ()


def test_the_devices_state_is_read_once_per_block(device: FakeCuda, clock: CudaKernelClock) -> None:
    """A listener is called after the launches of the last burst, while the device works."""
    task = Task(step=kernel(device, hot_ns=30 * US))
    left_ns: list[int] = []
    clock.on_launched = lambda: left_ns.append(device.free_ns - device.host.time_ns)
    block = clock.block(task, durations=70)
    assert pytest.approx([30e-6] * 70) == list(block.durations_s)
    assert len(left_ns) == 1
    assert left_ns[0] > 0


def launching(device: FakeCuda, launches: int) -> Step:
    """A step of so many kernels, of which each costs the host 5 µs and the device 20 µs."""

    def step() -> None:
        for _ in range(launches):
            device.launch(enqueue_ns=5 * US, device_ns=20 * US)

    return step


def test_steps_of_many_kernels_are_no_starving_device(
    device: FakeCuda, clock: CudaKernelClock
) -> None:
    """Bursts that fill the queue become shorter; neither they nor the spins are late for long."""
    task = Task(step=launching(device, 60))
    clock.block(task, durations=1)
    clock.block(task, durations=40)
    device.spins, device.spun_ns = 0, 0
    block = clock.block(task, durations=40)
    assert clock.flags(block.evidence) == ()
    assert pytest.approx([1.2e-3] * 40) == list(block.durations_s)
    assert device.spun_ns < 5 * US * 60 * 40 * 3


def test_a_step_that_waits_is_flagged(device: FakeCuda, clock: CudaKernelClock) -> None:
    """It cannot queue behind a spin; that it takes longer with a longer one lengthens none."""
    launch = kernel(device, hot_ns=30 * US)

    def waiting() -> None:
        launch()
        device.synchronize()

    task = Task(step=waiting)
    clock.block(task, durations=32)
    device.spins, device.spun_ns = 0, 0
    clock.block(task, durations=32)
    assert device.spun_ns / device.spins < 1000 * US
    assert clock.flags(clock.block(task, durations=320).evidence) == ("launch_bound",)


def test_a_late_burst_measures_the_spin_again(device: FakeCuda, clock: CudaKernelClock) -> None:
    """On a device whose clock has risen a spin is too short once, not for ever."""
    device.cycles_per_ns = lambda now_ns: 0.345 if now_ns < 20 * US * US else 1.98
    task = Task(step=kernel(device, hot_ns=30 * US))
    clock.block(task, durations=32)
    device.host.spend(20 * US * US)
    assert clock.flags(clock.block(task, durations=32).evidence) == ("launch_bound",)
    assert clock.flags(clock.block(task, durations=320).evidence) == ()


def test_the_spin_is_measured_again_after_the_warm_up(
    device: FakeCuda, clock: CudaKernelClock
) -> None:
    """No burst is late for a clock that rose in the warm-up."""
    device.cycles_per_ns = lambda now_ns: 0.345 if now_ns < 20 * US * US else 1.98
    task = Task(step=kernel(device, hot_ns=30 * US))
    clock.block(task, durations=32)
    device.host.spend(20 * US * US)
    clock.calibrate(task)
    assert clock.flags(clock.block(task, durations=32).evidence) == ()


@pytest.mark.parametrize("cache", ["hot", "cold"])
def test_kernels_on_another_stream_are_timed_until_they_are_done(
    device: FakeCuda, cache: Literal["hot", "cold"]
) -> None:
    """They do not queue behind the spin: each is waited for, its launch included, and flagged."""
    clock = CudaKernelClock(device, cache=cache, now=device.host.now)
    task = Task(step=lambda: device.launch(enqueue_ns=8 * US, device_ns=400 * US, stream=SIDE))
    clock.calibrate(task)
    block = clock.block(task, durations=40)
    assert pytest.approx([408e-6] * 40, rel=1e-2) == list(block.durations_s)
    assert clock.flags(block.evidence) == ("elsewhere",)


@pytest.mark.parametrize(("cache", "size"), [("hot", 0), ("cold", 1 << 20)])
def test_what_overwrites_the_cache_is_allocated_before(
    device: FakeCuda, cache: Literal["hot", "cold"], size: int
) -> None:
    """A cold clock says how much of the device's memory is its own; a hot one has none."""
    assert CudaKernelClock(device, cache=cache).prepare() == size


@pytest.mark.parametrize("of", ["setup", "teardown"])
def test_what_surrounds_a_kernel_is_no_work_elsewhere(
    device: FakeCuda, clock: CudaKernelClock, of: str
) -> None:
    """What it gives the device to do is neither timed nor flagged."""
    around: Any = {of: lambda: device.launch(enqueue_ns=US, device_ns=900 * US)}
    task = Task(step=kernel(device, hot_ns=30 * US), **around)
    clock.calibrate(task)
    block = clock.block(task, durations=5)
    assert pytest.approx([30e-6] * 5) == list(block.durations_s)
    assert clock.flags(block.evidence) == ()


def forked(device: FakeCuda, *, own_us: int, side_us: int) -> Step:
    """A kernel, and one on a side stream that begins with it and that nobody waits for."""

    def step() -> None:
        device.wait_for(CURRENT, stream=SIDE)
        device.launch(enqueue_ns=8 * US, device_ns=side_us * US, stream=SIDE)
        device.launch(enqueue_ns=8 * US, device_ns=own_us * US)

    return step


def test_other_streams_that_queue_behind_the_spin_are_timed_without_launches(
    device: FakeCuda, clock: CudaKernelClock
) -> None:
    """If they fall behind, kernels take what they do, and are flagged."""
    task = Task(step=forked(device, own_us=30, side_us=40))
    clock.calibrate(task)
    block = clock.block(task, durations=100)
    assert pytest.approx([40e-6] * 100, rel=0.02) == list(block.durations_s)
    assert clock.flags(block.evidence) == ("elsewhere",)


def test_a_host_without_kernels_is_timed_without_a_spin(
    device: FakeCuda, clock: CudaKernelClock
) -> None:
    """Between events behind a spin there would be nothing."""
    task = Task(step=lambda: device.host.spend(300 * US))
    clock.calibrate(task)
    block = clock.block(task, durations=5)
    assert pytest.approx([300e-6] * 5, rel=0.01) == list(block.durations_s)
    assert clock.flags(block.evidence) == ("launch_bound",)


class LateHost(FakeCuda):
    """A device from whose `late` waits, counted from zero, the host returns late."""

    def __init__(self, late: set[int], late_ns: int) -> None:
        super().__init__(FakeHost())
        self.late = late
        self.late_ns = late_ns

    def synchronize(self) -> None:
        super().synchronize()
        if self.waits - 1 in self.late:
            self.host.spend(self.late_ns)


@pytest.mark.parametrize("late", range(6))
def test_a_host_that_returns_late_from_waiting_once_is_no_work_elsewhere(late: int) -> None:
    """Whichever wait of the calibration it is, kernels still queue behind their spins."""
    device = LateHost({late}, 200 * US)
    clock = CudaKernelClock(device, now=device.host.now)
    task = Task(step=kernel(device, hot_ns=30 * US))
    clock.calibrate(task)
    block = clock.block(task, durations=5, calls_per_duration=10)
    assert pytest.approx([30e-6] * 5) == list(block.durations_s)
    assert clock.flags(block.evidence) == ()


def test_a_burst_after_which_the_host_returns_late_is_no_work_elsewhere() -> None:
    """A thread of Python that computes holds it up for 5 ms, longer than the burst."""
    device = LateHost(set(), 5000 * US)
    clock = CudaKernelClock(device, now=device.host.now)
    task = Task(step=kernel(device, hot_ns=30 * US))
    clock.calibrate(task)
    device.late = {device.waits + 3}
    block = clock.block(task, durations=9, calls_per_duration=34)
    assert pytest.approx([30e-6] * 9) == list(block.durations_s)
    assert clock.flags(block.evidence) == ()
