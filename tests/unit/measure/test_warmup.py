"""The warm-up, on a host clock that only goes on when it is told to."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import accumulate, cycle
from typing import Any

import pytest

from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.measure.clocks.base import Clock, Task
from gpubench_plugin.measure.clocks.cuda_step import CudaStepClock
from gpubench_plugin.measure.clocks.host import CpuClock
from gpubench_plugin.measure.plan import Planner
from gpubench_plugin.measure.warmup import WarmUp, warm_up
from gpubench_plugin.ranks.agreement import RankAgreement
from tests.support.fake_cuda import FakeCuda, FakeHost

MS = 1_000_000


def warmed(times_ns: Iterator[int] | int, *, setup_ns: int = 0, **keys: Any) -> WarmUp:
    """The warm-up of a step whose calls take these times, after a setup of the other one."""
    host = FakeHost()

    def step() -> None:
        host.spend(times_ns if isinstance(times_ns, int) else next(times_ns))

    task = Task(step=step, setup=partial(host.spend, setup_ns) if setup_ns else None)
    return ended(task, CpuClock(host.now), **keys)


def ended(task: Task, clock: Clock, **keys: Any) -> WarmUp:
    section = MeasureSection(**keys)
    planner = Planner(clock=clock, section=section, is_bare=task.is_bare)
    return warm_up(task, planner, RankAgreement(), first_call_s=0.0, is_counted=False)


def falling(first: int, last: int, factor: float) -> Iterator[int]:
    """Times that fall from the first to the last by a factor."""
    time = float(first)
    while True:
        yield round(time)
        time = max(float(last), time * factor)


def growing(factor: float) -> Iterator[int]:
    """Times that never come to rest."""
    time = float(MS)
    while True:
        yield round(time)
        time *= factor


def test_a_steady_step_warms_up_for_the_shortest_time() -> None:
    """On a CPU 0.1 s are enough for a step that is steady from the start."""
    warm = warmed(2 * MS)
    assert warm.steady
    assert (51, pytest.approx(0.102)) == (warm.calls, sum(warm.durations_s))
    assert pytest.approx((warm.pace.timed_s, warm.pace.wall_s)) == (0.002, 0.002)


def test_an_accelerator_warms_up_longer() -> None:
    """On an accelerator it is half a second."""
    host = FakeHost()
    device = FakeCuda(host)
    step = partial(device.launch, enqueue_ns=1000, device_ns=2 * MS)
    warm = ended(Task(step=step), CudaStepClock(device, host.now))
    assert warm.steady
    assert 0.5 <= sum(warm.durations_s) < 0.56


def test_slow_first_calls_are_waited_for() -> None:
    """A step that starts 200 times slower is warm only when its rounds are alike."""
    warm = warmed(falling(400 * MS, 2 * MS, 0.8))
    assert warm.steady
    assert pytest.approx(0.002, rel=0.02) == warm.pace.timed_s
    assert warm.calls >= 25


def test_short_calls_are_grouped_soon() -> None:
    """A step of 1 µs needs few blocks: each has at most ten times the calls of the one before."""
    warm = warmed(1000)
    assert warm.steady
    assert pytest.approx(1e-6) == warm.pace.timed_s
    assert pytest.approx(list(warm.durations_s)[:2]) == [1e-6, 1e-5]
    assert sum(warm.durations_s) < 0.11


def test_a_step_that_never_rests_is_given_up_after_the_rounds() -> None:
    """With the block of 100 rounds after the shortest time it ends, and is not called steady."""
    warm = warmed(growing(1.01), warmup_max_s=1e9)
    assert not warm.steady
    shortest = sum(elapsed < 0.1 for elapsed in accumulate(warm.durations_s, initial=0.0))
    assert shortest + 100 <= warm.calls < shortest + 100 + 10


def test_a_step_that_never_rests_is_given_up_after_the_time() -> None:
    """The warm-up ends with the block in which its time is over."""
    warm = warmed(growing(1.01), warmup_max_s=0.2)
    assert not warm.steady
    durations = list(warm.durations_s)
    assert sum(durations[:-1]) < 0.2 <= sum(durations)


def test_a_slow_step_is_not_warmed_up_for_minutes() -> None:
    """Of a step that takes 4 s only the calls that begin within the limit are run."""
    warm = warmed(4000 * MS)
    assert warm.calls == 3
    assert not warm.steady


def test_the_fewest_iterations_are_run() -> None:
    """More iterations than the time would give are run if they are asked for."""
    warm = warmed(20 * MS, warmup_iterations=40)
    assert warm.calls == 40


def test_setup_counts_in_the_wall_clocks_pace() -> None:
    """The pace tells the step's own time and that of the whole round apart."""
    warm = warmed(MS, setup_ns=9 * MS)
    assert pytest.approx((warm.pace.timed_s, warm.pace.wall_s)) == (0.001, 0.01)


def test_a_slow_trend_is_waited_for_until_the_limit() -> None:
    """One percent slower in ten rounds is nothing between windows, and 10% in a hundred."""
    warm = warmed(growing(1.001), warmup_max_s=1e9)
    assert not warm.steady
    assert warm.calls > 150


def test_a_trend_that_ends_is_waited_for() -> None:
    """The warm-up goes on until the slow calls are the smaller part of what is looked at."""
    warm = warmed(falling(4 * MS, 2 * MS, 0.99))
    assert warm.steady
    assert pytest.approx(0.002, rel=0.02) == warm.pace.timed_s


def test_strict_alternation_needs_no_longer_warm_up() -> None:
    """A step whose calls take 1x and 2x in turn is as steady as one of equal calls."""
    warm = warmed(cycle([2 * MS, 4 * MS]))
    assert warm.steady
    assert sum(warm.durations_s) < 0.1 + 0.01 + 0.002


def test_the_tail_is_what_was_last() -> None:
    """The last third of the rounds that were looked at is kept for the test of the timed ones."""
    warm = warmed(falling(400 * MS, 2 * MS, 0.8))
    assert set(warm.tail_s) == {0.002}
    assert list(warm.durations_s)[-len(warm.tail_s) :] == list(warm.tail_s)


def test_nine_rounds_are_too_few_to_be_steady() -> None:
    """Of two parts of five each."""
    assert not warmed(2 * MS, warmup_s=0.001, warmup_max_s=0.018).steady
    assert warmed(2 * MS, warmup_s=0.001, warmup_max_s=0.02).steady
