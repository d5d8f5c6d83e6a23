"""The measuring loop, mostly on a host clock that only goes on when it is told to."""

from __future__ import annotations

import gc
import math
import time
import weakref
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import pytest

from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.core.errors import MeasurementError
from gpubench_plugin.core.records import Samples
from gpubench_plugin.measure.clocks.base import Block, Clock, Task
from gpubench_plugin.measure.clocks.cuda_step import CudaStepClock
from gpubench_plugin.measure.clocks.host import CpuClock
from gpubench_plugin.measure.loop import Variant, measure
from gpubench_plugin.ranks.agreement import RankAgreement
from tests.support.exhaustive import shown
from tests.support.fake_cuda import FakeCuda, FakeHost

MS = 1_000_000


class Counted:
    """A step that counts its calls and takes these times in turn."""

    def __init__(self, host: FakeHost, *times_ns: int) -> None:
        self.calls = 0
        self._host = host
        self._times = cycle(times_ns)

    def __call__(self) -> None:
        self.calls += 1
        self._host.spend(next(self._times))


def timed(
    step: Callable[[], object], clock: Clock, section: MeasureSection | None = None, **more: Any
) -> Samples:
    """The samples of `step`, with the default keys unless there is a `section`."""
    task = Task(step=step, setup=more.pop("setup", None), teardown=more.pop("teardown", None))
    section = section or MeasureSection()
    variant = Variant(task=task, clock=clock)
    return measure([variant], section=section, agreement=RankAgreement(), **more)[0]


def measured(*times_ns: int, **keys: Any) -> tuple[Samples, Counted]:
    """The samples of a step on the fake host's clock, and the step."""
    host = FakeHost()
    step = Counted(host, *times_ns)
    return timed(step, CpuClock(host.now), MeasureSection(**keys)), step


def test_a_steady_step_is_done_after_the_least_time() -> None:
    """Nothing is flagged, and every call is in one of the parts of the samples."""
    samples, step = measured(2 * MS)
    assert pytest.approx(list(samples.durations_s)) == [0.002] * 100
    assert samples.block_calls == (5,) * 20
    assert pytest.approx(list(samples.block_s)) == [0.01] * 20
    assert pytest.approx(0.002) == samples.first_step_s
    assert (samples.calls_per_duration, samples.durations_per_round, samples.warmup_calls) == (
        1,
        1,
        51,
    )
    assert samples.flags == ()
    assert 1 + samples.warmup_calls + samples.calls == step.calls
    assert samples.timer == "perf_counter_ns"


def test_a_short_step_is_timed_in_groups() -> None:
    """Steps of 130 ns are timed 385 at a time, which is 50 µs; rounds last 1 ms, blocks 10 ms."""
    samples, step = measured(130)
    assert (samples.calls_per_duration, samples.durations_per_round) == (385, 20)
    assert pytest.approx(list(samples.durations_s)) == [1.3e-7] * 4000
    assert samples.block_calls == (77_000,) * 20
    assert 1 + samples.warmup_calls + samples.calls == step.calls


def test_rounds_of_the_record_are_those_of_the_loop() -> None:
    """Whole rounds per block: the record cuts the durations where the loop did."""
    samples, _ = measured(300_000, 310_000, 290_000)
    assert samples.durations_per_round == 4
    assert len(samples.durations_s) == 4 * len(samples.rounds_s)
    assert all(calls % 4 == 0 for calls in samples.block_calls)


# From 2 to 3 ms, each two 5 ms together.
NOISE_MS = tuple(ms for n in range(101) for x in [n * 37 % 101 / 202] for ms in (2 + x, 3 - x))


@pytest.mark.parametrize(
    ("times_ms", "keys", "rounds", "flags"),
    [
        pytest.param(NOISE_MS, {}, 200, (), id="half the most, with a wide interval"),
        pytest.param((2,) * 100 + (3,) * 100, {}, 300, (), id="until there is one"),
        pytest.param((2,) * 120 + (3,) * 120, {}, 400, (), id="the most, where one is hidden"),
        pytest.param((12_000,), {}, 3, (), id="ten times the limit"),
        pytest.param((100,), {}, 10, (), id="the fewest rounds"),
        pytest.param((1,), {"min_time_s": 0.2, "max_rounds": 50}, 200, (), id="the least time"),
        pytest.param((1,), {"min_time_s": 1.0, "max_rounds": 50}, 1000, (), id="a longer one"),
        pytest.param((100, 101), {"ci_half_width": 0.006}, 10, (), id="a wider target"),
    ],
)
def test_rounds_go_on_until_the_goal_or_a_limit(
    times_ms: tuple[float, ...], keys: dict[str, Any], rounds: int, flags: tuple[str, ...]
) -> None:
    """The most rounds do not cut the least time, nor the limit of time the fewest."""
    samples, _ = measured(*(round(ms * MS) for ms in times_ms), **keys)
    assert (len(samples.rounds_s), samples.flags) == (rounds, flags)


@pytest.mark.slow
@pytest.mark.parametrize("per_call_ns", shown(100, 5 * MS, exhaustively=[4_000, 7_000, 400_000]))
@pytest.mark.parametrize("steps", shown(1, 50, exhaustively=[7, 1200]))
def test_by_steps_exactly_so_many_calls_are_timed(per_call_ns: int, steps: int) -> None:
    """The number of timed calls is that of the configuration, for every length of the step."""
    samples, step = measured(per_call_ns, by="steps", steps=steps)
    assert steps == samples.calls
    assert samples.rounds_s
    assert 1 + samples.warmup_calls + samples.calls == step.calls


def test_by_time_the_window_is_filled() -> None:
    """Blocks follow each other until the window is over, and the interval stops nothing."""
    samples, _ = measured(3 * MS, by="time", time_s=0.5)
    assert 0.5 <= sum(samples.block_s) < 0.5 + 0.003


def test_a_step_that_never_rests_is_flagged() -> None:
    """A step that gets slower all the time is ``unsteady``."""
    host = FakeHost()
    times = iter(range(MS, 10**9, MS // 5))
    samples = timed(lambda: host.spend(next(times)), CpuClock(host.now))
    assert "unsteady" in samples.flags


def test_stalls_are_flagged_and_kept() -> None:
    """Every 20th call stalls: the flag is set and the stalls are in the samples."""
    samples, _ = measured(*[2 * MS] * 19, 20 * MS, by="steps", steps=100)
    assert "outliers" in samples.flags
    assert sum(duration > 0.01 for duration in samples.durations_s) == 5


@pytest.mark.slow
def test_calls_in_the_largest_groups_are_not_too_short() -> None:
    """Of an empty call no more fit into the queue, beside which an event is nothing."""
    host = FakeHost()
    samples = timed(lambda: host.spend(45), CudaStepClock(FakeCuda(host), host.now))
    assert samples.calls_per_duration == CudaStepClock.queued_calls
    assert "timer_overhead" not in samples.flags


def test_a_clocks_flags_are_recorded() -> None:
    """What the clock concludes from the evidence of the timed blocks is in the samples."""
    host = FakeHost()
    device = FakeCuda(host)
    samples = timed(
        lambda: device.launch(enqueue_ns=200_000, device_ns=10_000), CudaStepClock(device, host.now)
    )
    assert samples.flags == ("launch_bound",)
    assert pytest.approx(2e-4, rel=0.01) == samples.durations_s[5]
    assert samples.timer == "cuda_events"


@pytest.mark.parametrize(
    ("seconds", "keys", "calls", "is_calibrated"),
    [
        pytest.param((0.9, 0.045), {"steps": 10, "warmup_max_s": 2.25}, (9, 10), True, id="long"),
        pytest.param(
            (1.1, 0.055), {"steps": 10, "warmup_max_s": 2.75}, (3, 10), False, id="costly"
        ),
        pytest.param((0.7, 0.05), {"steps": 2, "warmup_max_s": 1e-6}, (0, 2), False, id="cold"),
        pytest.param((0.7, 0.05), {"steps": 8, "warmup_max_s": 0.001}, (1, 8), False, id="few"),
        pytest.param((0.7, 0.05), {"steps": 9, "warmup_max_s": 0.001}, (7, 9), True, id="enough"),
    ],
)
def test_costly_and_few_steps_are_not_called_for_the_clock(
    seconds: tuple[float, float], keys: dict[str, Any], calls: tuple[int, int], is_calibrated: bool
) -> None:
    """Of a step over a second, and of fewer than ten calls, none is for the clock: it is noted.

    These are the calls after the first one: the warm-up with the calibration, and the timed.
    """
    host, steps = FakeHost(), list[None]()
    device = FakeCuda(host)
    host_s, device_s = seconds

    def step() -> None:
        steps.append(None)
        device.launch(enqueue_ns=round(host_s * 1e9), device_ns=round(device_s * 1e9))

    section = MeasureSection(by="steps", min_rounds=2, **keys)
    samples = timed(step, CudaStepClock(device, host.now), section)
    assert (samples.warmup_calls, samples.calls) == calls
    assert len(steps) == 1 + sum(calls)
    assert ("launch_bound" in samples.flags) == is_calibrated
    assert ("uncalibrated" in samples.flags) != is_calibrated


def test_setup_and_teardown_surround_every_call() -> None:
    """They run once per call, the first and those of the warm-up included, and are not timed."""
    host = FakeHost()
    order: list[str] = []

    def noted(name: str, ns: int) -> Callable[[], None]:
        def call() -> None:
            order.append(name)
            host.spend(ns)

        return call

    samples = timed(
        noted("step", 1000),
        CpuClock(host.now),
        setup=noted("setup", 2 * MS),
        teardown=noted("teardown", 3 * MS),
    )
    calls = 1 + samples.warmup_calls + samples.calls
    assert ["setup", "step", "teardown"] * calls == order
    assert samples.calls_per_duration == 1
    assert {1e-6} == {round(duration, 12) for duration in samples.durations_s}
    assert pytest.approx(samples.calls * 1e-6) == sum(samples.block_s)
    assert host.time_ns * 1e-9 < 10


def test_the_timed_calls_are_announced_once() -> None:
    """The announcement comes after the warm-up and before the first timed call."""
    host = FakeHost()
    step = Counted(host, 2 * MS)
    announced: list[int] = []
    samples = timed(step, CpuClock(host.now), on_timed=lambda: announced.append(step.calls))
    assert [1 + samples.warmup_calls] == announced


@pytest.mark.parametrize(
    ("keys", "remaining_s"),
    [
        ({}, [None, None, 2.3, 1.25, 0.0]),
        ({"max_time_s": 1.0}, [None, None, 0.8, 0.5, 0.0]),
        ({"by": "time", "time_s": 1.0}, [0.99, 0.8, 0.79, 0.5, 0.0]),
        ({"by": "steps", "steps": 200}, [2.49, 2.3, 2.3, 1.25, 0.0]),
    ],
)
def test_progress_is_told_between_blocks(
    keys: dict[str, Any], remaining_s: list[float | None]
) -> None:
    """After every block: rounds, calls, half-width as of the last check, and the time to the end.

    Of intervals that do not narrow enough that is the time until enough rounds, or the limit.
    """
    host = FakeHost()
    rows: list[Any] = []
    samples = timed(
        Counted(host, *(round(5 * ms * MS) for ms in NOISE_MS)),
        CpuClock(host.now),
        MeasureSection(**keys),
        on_progress=lambda told: rows.append(
            (
                *(told.recording.rounds, told.recording.calls, told.recording.half_width),
                *(told.step_s, told.remaining_s),
            )
        ),
    )
    assert len(samples.block_s) == len(rows)
    assert [row[:2] for row in rows] == [(n, n) for n in range(1, len(rows) + 1)]
    assert all(half_width == math.inf for _, _, half_width, *_ in rows[:16])
    assert all(half_width < 0.2 for _, _, half_width, *_ in rows[16:])
    assert all(step_s == pytest.approx(0.0125, rel=0.2) for *_, step_s, _ in rows[16:])
    shown = [rows[at][-1] for at in (0, 15, 16, len(rows) // 2, -1)]
    assert shown == [None if s is None else pytest.approx(s, abs=0.1) for s in remaining_s]


class Broken(Clock):
    """A clock whose timed durations are wrong after some good ones."""

    timer = "broken"

    def __init__(self, host: FakeHost, wrong: float) -> None:
        super().__init__(host.now)
        self._good = CpuClock(host.now)
        self._wrong = wrong
        self.timing = False

    def block(self, task: Task, *, durations: int, calls_per_duration: int = 1) -> Block:
        block = self._good.block(task, durations=durations, calls_per_duration=calls_per_duration)
        if self.timing:
            block.durations_s[-1] = self._wrong
        return block


@pytest.mark.parametrize("wrong", [0.0, math.nan, math.inf])
def test_impossible_durations_are_refused(wrong: float) -> None:
    """A timed duration of zero, or not finite, ends the measurement with an error."""
    host = FakeHost()
    clock = Broken(host, wrong)
    with pytest.raises(MeasurementError, match=f"lasted {wrong} s"):
        timed(Counted(host, 2 * MS), clock, on_timed=lambda: setattr(clock, "timing", True))


@pytest.fixture
def garbage_collector() -> Iterator[None]:
    """Garbage collection on before the test, and after it."""
    gc.enable()
    yield
    gc.enable()


@pytest.mark.usefixtures("garbage_collector")
@pytest.mark.parametrize("wanted", [True, False])
def test_garbage_is_collected_while_timing_only_if_wanted(wanted: bool) -> None:
    """``measure.gc`` decides; afterwards the collector is on as before."""
    host = FakeHost()
    seen: set[bool] = set()

    def step() -> None:
        seen.add(gc.isenabled())
        host.spend(2 * MS)

    timed(step, CpuClock(host.now), MeasureSection(gc=wanted))
    assert {wanted} == seen
    assert gc.isenabled()


@pytest.mark.usefixtures("garbage_collector")
@pytest.mark.parametrize("wanted", [True, False])
def test_garbage_is_gone_before_the_first_call(wanted: bool) -> None:
    """A model of what came before takes no memory while the step is timed."""

    class Model:
        def __init__(self) -> None:
            self.itself = self

    host = FakeHost()
    alive: list[bool] = []

    def step() -> None:
        alive.append(gone() is not None)
        host.spend(2 * MS)

    gc.disable()
    try:
        gone = weakref.ref(Model())
        timed(step, CpuClock(host.now), MeasureSection(gc=wanted))
    finally:
        gc.enable()
    assert not any(alive)


def test_a_collector_that_was_off_stays_off() -> None:
    """The state before the measurement is put back, whichever it was."""
    gc.disable()
    measured(2 * MS)
    assert not gc.isenabled()


@pytest.mark.usefixtures("garbage_collector")
@pytest.mark.parametrize("at_call", [1, 5, 55])
def test_an_exception_of_the_step_goes_on_to_the_caller(at_call: int) -> None:
    """In the first call, the warm-up or a timed block: garbage collection is on again."""
    host = FakeHost()
    calls = iter(range(1, 1000))

    def step() -> None:
        if next(calls) == at_call:
            raise ZeroDivisionError
        host.spend(2 * MS)

    with pytest.raises(ZeroDivisionError):
        timed(step, CpuClock(host.now))
    assert gc.isenabled()


def test_a_real_step_is_measured() -> None:
    """On the real clock, the samples of a real step are finite, positive and add up."""
    calls = 0

    def step() -> None:
        nonlocal calls
        calls += 1
        time.sleep(1e-4)

    samples = timed(step, CpuClock(), MeasureSection(by="steps", steps=20, warmup_s=0.01))
    assert samples.calls == 20
    assert 1 + samples.warmup_calls + 20 == calls
    assert min(samples.durations_s) >= 1e-4
    assert sum(samples.block_s) == pytest.approx(sum(samples.durations_s))
