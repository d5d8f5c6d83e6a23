"""The clocks of CUDA against the time of a call in an endless loop, on a device on paper.

Either the median and the throughput are within 0.5% of it, or the number is flagged, or what other
streams add lies below the limits of that flag.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.measure.clocks.base import Task
from gpubench_plugin.measure.clocks.cuda_kernel import CudaKernelClock
from gpubench_plugin.measure.clocks.cuda_step import CudaStepClock
from gpubench_plugin.measure.loop import Variant, measure
from gpubench_plugin.ranks.agreement import RankAgreement
from tests.support.exhaustive import shown
from tests.support.fake_cuda import CURRENT, SIDE, FakeCuda, FakeHost

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.core.records import Samples

pytestmark = pytest.mark.slow

US = 1000
EVENT_NS = 1500
"""Device time of a timed event: 1 to 2 µs."""
BRIEF = MeasureSection(
    warmup_s=0.1, warmup_max_s=0.5, max_time_s=0.3, min_time_s=0.05, max_rounds=100
)


@dataclass(frozen=True)
class Load:
    """A step of `kernels`, with the µs of host and device for all of them together.

    The host spends `before_us` before the first launch. The side stream works for `side_us`, from
    the step's first kernel on, or as the `last` part from its end on; the current one waits for it
    at the end of the step, or never does. As the `first` part it begins before the first kernel is
    launched, which waits for it if it is `awaited`.
    """

    host_us: float
    device_us: float
    kernels: int = 1
    before_us: float = 0.0
    side_us: float = 0.0
    awaited: bool = False
    last: bool = False
    first: bool = False

    def run(self, device: FakeCuda) -> None:
        """One call."""
        device.host.spend(round(self.before_us * US))
        if self.first:
            device.launch(enqueue_ns=1500, device_ns=round(self.side_us * US), stream=SIDE)
        if self.first and self.awaited:
            device.wait_for(SIDE, stream=CURRENT)
        for kernel in range(self.kernels):
            device.launch(
                enqueue_ns=round(self.host_us * US / self.kernels),
                device_ns=round(self.device_us * US / self.kernels),
            )
            if kernel == 0 and self.side_us and not (self.first or self.last):
                device.launch(enqueue_ns=0, device_ns=round(self.side_us * US), stream=SIDE)
        if self.last:
            device.wait_for(CURRENT, stream=SIDE)
            device.launch(enqueue_ns=0, device_ns=round(self.side_us * US), stream=SIDE)
        if self.awaited and not self.first:
            device.wait_for(SIDE, stream=CURRENT)

    def endless_s(self, launch: bool = True) -> float:
        """Seconds of a call in an endless loop; without its launches if the host is free."""
        load = self if launch else replace(self, host_us=0.0, before_us=0.0)
        device = FakeCuda(FakeHost())
        calls = 100
        for _ in range(20):
            load.run(device)
        begin_ns = max(device.host.time_ns, device.idle_ns)
        for _ in range(calls):
            load.run(device)
        return (max(device.host.time_ns, device.idle_ns) - begin_ns) / calls * 1e-9


def measured(
    load: Load,
    clock: Callable[[FakeCuda], CudaStepClock | CudaKernelClock],
    section: MeasureSection = BRIEF,
) -> Samples:
    device = FakeCuda(FakeHost(), record_ns=EVENT_NS)
    return measure(
        [Variant(task=Task(step=lambda: load.run(device)), clock=clock(device))],
        section=section,
        agreement=RankAgreement(),
    )[0]


def by_steps(load: Load, section: MeasureSection = BRIEF) -> Samples:
    return measured(load, lambda device: CudaStepClock(device, device.host.now), section)


def by_kernels(load: Load) -> Samples:
    return measured(load, lambda device: CudaKernelClock(device, now=device.host.now))


def errors(samples: Samples, truth_s: float) -> tuple[float, float]:
    """Relative errors of the median and of the mean over all blocks."""
    mean_s = sum(samples.block_s) / samples.calls
    return median(samples.durations_s) / truth_s - 1, mean_s / truth_s - 1


def is_right(samples: Samples, truth_s: float) -> bool:
    return all(abs(error) <= 0.005 for error in errors(samples, truth_s))


def loads(
    devices_us: tuple[float, ...],
    kernels: tuple[int, ...],
    before: tuple[float, ...],
    **others: Any,
) -> list[Load]:
    """Loads of all these kinds; the share `before` of the host's time is before the launches."""
    return [
        Load(
            host_us=device_us * ratio * (1 - share),
            device_us=device_us,
            kernels=count,
            before_us=device_us * ratio * share,
            **others,
        )
        for device_us, count, share, ratio in product(devices_us, kernels, before, RATIOS)
    ]


def thinned(cases: list[Any]) -> list[Any]:
    """A third of the cases, always the same, for every run of tox, and the others."""
    return shown(*Random(3).sample(cases, len(cases) // 3), exhaustively=cases)


RATIOS = (0.5, 0.8, 0.96, 1.0, 1.05, 2.0)
STEPS = [
    *loads((30.0,), (1,), (0.0, 0.7)),
    *loads((400.0,), (1, 10), (0.0, 0.7)),
    *loads((12_000.0,), (1, 100), (0.0, 0.7)),
]
ALL_STEPS = [
    *loads((30.0, 400.0, 1100.0, 5000.0, 50_000.0), (1, 3, 20), (0.0, 0.3, 0.7)),
    *loads((5000.0, 50_000.0), (500,), (0.0, 0.3, 0.7)),
]
# Kernels of at least 3 µs and launches of at least 1.5 µs: shorter ones do not exist.
MANY_KERNELS = loads((10_000.0, 50_000.0), (1500, 3000), (0.0, 0.1))


@pytest.mark.parametrize("load", STEPS, ids=str)
def test_a_step_takes_what_it_takes_in_an_endless_loop(load: Load) -> None:
    """Whichever of host and device is slower, and wherever in the step the host is busy."""
    assert_right(load)


@pytest.mark.exhaustive
@pytest.mark.parametrize("load", ALL_STEPS + MANY_KERNELS, ids=str)
def test_every_step_takes_what_it_takes_in_an_endless_loop(load: Load) -> None:
    """The same over a finer grid, also of steps that fill the queue."""
    assert_right(load)


def assert_right(load: Load) -> None:
    samples, truth_s = by_steps(load), load.endless_s()
    assert is_right(samples, truth_s), errors(samples, truth_s)
    assert "outliers" not in samples.flags
    assert "elsewhere" not in samples.flags
    if load.kernels < 1000:  # else the queue is full before the first launch time is known
        is_launch_bound = load.host_us + load.before_us >= 0.95 * load.device_us
        assert ("launch_bound" in samples.flags) == is_launch_bound


@pytest.mark.parametrize("steps", shown(1, 5, exhaustively=(2, 9)))
@pytest.mark.parametrize(
    "load", thinned([*STEPS, *loads((1_200_000.0,), (1, 10), (0.0, 0.7))]), ids=str
)
def test_few_steps_are_right_or_flagged(load: Load, steps: int) -> None:
    """With too few calls to group them, or too long ones to calibrate the clock, a note tells."""
    section = MeasureSection(by="steps", steps=steps, min_rounds=2, warmup_s=0.1, warmup_max_s=0.5)
    samples, truth_s = by_steps(load, section), load.endless_s()
    doubtful = {"timer_overhead", "uncalibrated"}.intersection(samples.flags)
    assert doubtful or is_right(samples, truth_s), errors(samples, truth_s)
    assert ("uncalibrated" in doubtful) == (truth_s > 1)
    assert ("timer_overhead" in doubtful) == (truth_s * samples.calls_per_duration < 0.45e-3)


LONG = loads((1_100_000.0, 2_000_000.0), (1, 10), (0.0, 0.7))


@pytest.mark.parametrize("load", LONG, ids=str)
def test_steps_too_long_to_calibrate_are_right_by_their_warm_up(load: Load) -> None:
    """A block of two calls shows what the first of them has on an idle device only."""
    samples, truth_s = by_steps(load, MeasureSection()), load.endless_s()
    assert is_right(samples, truth_s), errors(samples, truth_s)
    assert "uncalibrated" in samples.flags


SIDES = [
    Load(device_us * ratio, device_us, kernels, side_us=device_us * side, awaited=awaited)
    for device_us, kernels, ratio, side, awaited in product(
        (400.0, 5000.0), (1, 10), (0.3, 0.9, 1.1, 3.0), (0.5, 1.02, 1.2, 4.0), (False, True)
    )
]


@pytest.mark.parametrize("load", thinned(SIDES), ids=str)
def test_work_on_another_stream_costs_what_it_costs_in_an_endless_loop(load: Load) -> None:
    """Awaited or not; what outlasts the step's own stream is flagged, and in the number."""
    samples, truth_s = by_steps(load), load.endless_s()
    slower_us = max(load.host_us, load.device_us)
    is_elsewhere = load.side_us > 1.06 * slower_us and not load.awaited
    assert ("elsewhere" in samples.flags) == is_elsewhere
    if not load.awaited and slower_us < load.side_us <= 1.05 * slower_us:
        assert all(-0.05 <= error <= 0.005 for error in errors(samples, truth_s))
    else:
        assert is_right(samples, truth_s), errors(samples, truth_s)


FIRST = [
    Load(
        *(device_us * ratio, device_us, kernels),
        side_us=device_us * side,
        awaited=awaited,
        first=True,
    )
    for device_us, kernels, ratio, side, awaited in product(
        (400.0, 5000.0, 12_000.0), (1, 10), (0.01, 0.3, 0.7, 1.1), (0.25, 0.75, 1.1, 3.0), (0, 1)
    )
]


@pytest.mark.parametrize("load", thinned(FIRST), ids=str)
def test_work_that_another_stream_begins_costs_what_it_costs_in_an_endless_loop(load: Load) -> None:
    """A prefetch that the step waits for first is part of the first call of an idle device only.

    One that nobody waits for falls behind, however late the step's own work is launched.
    """
    samples, truth_s = by_steps(load), load.endless_s()
    assert is_right(samples, truth_s), errors(samples, truth_s)
    is_behind = load.side_us > 1.05 * max(load.host_us, load.device_us) and not load.awaited
    assert ("elsewhere" in samples.flags) == is_behind


LAST = [
    Load(device_us * ratio, device_us, kernels, side_us=device_us * side, last=True)
    for device_us, kernels, ratio, side in product(
        (400.0, 5000.0, 12_000.0), (1, 10), (0.3, 0.9, 1.1), (0.2, 0.9, 1.3, 4.0)
    )
]


@pytest.mark.parametrize("load", thinned(LAST), ids=str)
def test_work_that_overlaps_the_next_step_costs_nothing(load: Load) -> None:
    """A stream that goes on while the next step runs, as a copy to the host does, keeps pace."""
    samples, truth_s = by_steps(load), load.endless_s()
    slower_us = max(load.host_us, load.device_us)
    assert is_right(samples, truth_s), errors(samples, truth_s)
    assert ("elsewhere" in samples.flags) == (load.side_us > slower_us)


SETUPS = [
    (Load(device_us * ratio, device_us, kernels), Load(device_us * host, device_us * device))
    for device_us, kernels, ratio, host, device in product(
        (400.0, 5000.0), (1, 10), (0.3, 0.9, 1.1, 3.0), (0.1, 1.0), (0.0, 0.5, 2.0)
    )
]


@pytest.mark.parametrize("case", thinned(SETUPS), ids=str)
def test_a_step_after_a_setup_takes_what_it_takes_in_an_endless_loop(
    case: tuple[Load, Load],
) -> None:
    """Whether the setup leaves the device idle at every start, or behind."""
    load, setup = case
    device = FakeCuda(FakeHost())
    events = [(device.event(), device.event()) for _ in range(120)]
    for start, end in events:
        setup.run(device)
        start.record()
        load.run(device)
        end.record()
    device.synchronize()
    truth_s = median(start.elapsed_time(end) * 1e-3 for start, end in events[20:])
    device = FakeCuda(FakeHost())
    samples = measure(
        [
            Variant(
                task=Task(step=lambda: load.run(device), setup=lambda: setup.run(device)),
                clock=CudaStepClock(device, device.host.now),
            )
        ],
        section=BRIEF,
        agreement=RankAgreement(),
    )[0]
    assert is_right(samples, truth_s), errors(samples, truth_s)
    assert "outliers" not in samples.flags


KERNELS = [
    Load(launch_us * kernels, device_us * kernels, kernels)
    for launch_us, device_us, kernels in product((3.0, 8.0), (2.0, 30.0, 200.0), (1, 3, 20, 200))
]


@pytest.mark.parametrize("load", KERNELS, ids=str)
def test_kernels_take_what_the_device_takes_without_launches(load: Load) -> None:
    """Also steps of so many kernels that few of them fill the queue."""
    samples, truth_s = by_kernels(load), load.endless_s(launch=False)
    assert is_right(samples, truth_s), errors(samples, truth_s)
    assert samples.flags == ()


@pytest.mark.parametrize("load", KERNELS, ids=str)
def test_cold_kernels_are_right_or_flagged(load: Load) -> None:
    """Each call is alone between two events: a note tells where their own time shows."""
    samples = measured(load, lambda d: CudaKernelClock(d, cache="cold", now=d.host.now))
    truth_s = load.endless_s(launch=False)
    doubtful = {"timer_overhead", "launch_bound"}.intersection(samples.flags)
    assert doubtful or is_right(samples, truth_s), errors(samples, truth_s)
    assert ("timer_overhead" in doubtful) == (truth_s < 0.49e-3)


KERNELS_BESIDE = [
    Load(8.0 * kernels, own_us, kernels, side_us=own_us * side, awaited=awaited, last=last)
    for own_us, kernels, side, (awaited, last) in product(
        (30.0, 400.0),
        (1, 10),
        (0.2, 0.9, 1.02, 1.2, 4.0),
        ((False, False), (True, False), (False, True)),
    )
]


@pytest.mark.parametrize("load", thinned(KERNELS_BESIDE), ids=str)
def test_kernels_on_another_stream_take_what_they_take_without_launches(load: Load) -> None:
    """They queue behind the spin as well; what falls behind by over 5% is flagged."""
    samples, truth_s = by_kernels(load), load.endless_s(launch=False)
    is_little = load.device_us < load.side_us <= 1.05 * load.device_us
    if is_little and not load.awaited:
        assert all(-0.05 <= error <= 0.005 for error in errors(samples, truth_s))
    else:
        is_behind = load.side_us > load.device_us and not load.awaited
        assert ("elsewhere" in samples.flags) == is_behind
        assert is_behind or is_right(samples, truth_s), errors(samples, truth_s)


KERNELS_FIRST = [
    Load(host_us, own_us, 1, side_us=own_us * side, awaited=awaited, first=True)
    for own_us, side, awaited, host_us in product(
        (400.0, 12_000.0), (0.5, 2.0), (0, 1), (8.0, 2000.0, 26_000.0)
    )
]


@pytest.mark.parametrize("load", KERNELS_FIRST, ids=str)
def test_kernels_behind_another_streams_take_what_they_take_without_launches(load: Load) -> None:
    """However long their launches take, and however few of them a burst has."""
    samples, truth_s = by_kernels(load), load.endless_s(launch=False)
    is_late = "launch_bound" in samples.flags
    assert is_late or is_right(samples, truth_s), errors(samples, truth_s)
    is_behind = load.side_us > load.device_us and not load.awaited
    assert is_late or ("elsewhere" in samples.flags) == is_behind


@pytest.mark.parametrize("burst", [1, 100])
def test_kernels_that_wait_for_the_call_before_them_take_that_time(burst: int) -> None:
    """Also the first of a burst, which on an idle device has nothing to wait for."""
    device = FakeCuda(FakeHost(), record_ns=EVENT_NS)

    def step() -> None:
        device.wait_for(SIDE, stream=CURRENT)
        device.launch(enqueue_ns=8 * US, device_ns=1000 * US)
        device.wait_for(CURRENT, stream=SIDE)
        device.launch(enqueue_ns=8 * US, device_ns=3000 * US, stream=SIDE)

    clock = CudaKernelClock(device, now=device.host.now)
    clock.calibrate(Task(step=step))
    block = clock.block(Task(step=step), durations=burst)
    assert block.length_s == pytest.approx(burst * 4e-3, rel=0.005)


def test_kernels_that_cannot_queue_are_flagged() -> None:
    """A step that fills the queue by itself is launched while it runs."""
    samples = by_kernels(Load(8.0 * 3000, 2.0 * 3000, 3000))
    assert "launch_bound" in samples.flags


def test_events_between_short_kernels_cost_less_than_half_a_percent() -> None:
    """A kernel of 30 µs is timed in groups, beside which 1.5 µs of an event are little."""
    for samples in (by_steps(Load(8.0, 30.0)), by_kernels(Load(8.0, 30.0))):
        assert samples.calls_per_duration * 30e-6 >= 1e-3
        assert is_right(samples, 30e-6)
