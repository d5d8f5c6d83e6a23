"""Variants that take turns, on a clock that only they move, and their speed-up."""

from __future__ import annotations

import math
import random
from itertools import groupby
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.config.rounds_file import FixedRounds
from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.core.quality_flags import doubtful_flags
from gpubench_plugin.measure.clocks.base import Task
from gpubench_plugin.measure.clocks.cuda_step import CudaStepClock
from gpubench_plugin.measure.loop import Variant, measure
from gpubench_plugin.measure.paired_turns import paired_speed_up
from gpubench_plugin.measure.plan import FEWEST_BLOCKS
from gpubench_plugin.ranks.agreement import RankAgreement
from tests.support.fake_cuda import FakeCuda, FakeHost
from tests.support.virtual_steps import autoregressive, independent, modes, noisy
from tests.support.virtual_variants import VirtualVariants

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.virtual_steps import Course

MS = 1e-3
SIMULATED = 100
"""Measurements per machine: a coverage of 95% has a standard error of 2%."""


def test_variants_take_turns_there_and_back() -> None:
    """Each turn is one untimed call and a block; the pass after A B C is C B A."""
    variants, begun = VirtualVariants(2 * MS, 4 * MS, 1 * MS), []
    samples = variants.measured(on_timed=lambda: begun.append(len(variants.order)))
    turns = [(number, len(list(calls))) for number, calls in groupby(variants.order[begun[0] :])]
    # Neighbouring turns of one variant, at the end of a pass and the start of the next, are one.
    assert turns[:7] == [(0, 6), (1, 4), (2, 22), (1, 4), (0, 12), (1, 4), (2, 22)]
    assert [s.block_calls[0] for s in samples] == [5, 3, 10]
    assert len({len(s.block_s) for s in samples}) == 1
    assert [s.flags for s in samples] == [()] * 3
    assert [s.durations_s[0] for s in samples] == pytest.approx([2 * MS, 4 * MS, MS])
    assert variants.results == [None, None, 2]


def test_the_time_limit_is_per_variant() -> None:
    """Two noisy variants are measured until twice the limit of 3 s is over."""
    machine = independent(random.Random(1), 0.2)
    variants, begun = VirtualVariants(100 * MS, 50 * MS, machine=machine), []
    samples = variants.measured(on_timed=lambda: begun.append(variants.host.time_ns))
    assert (variants.host.time_ns - begun[0]) * 1e-9 == pytest.approx(6.0, rel=0.1)
    assert all(not doubtful_flags(s.flags) for s in samples)


def test_counted_calls_and_rounds_are_the_same_for_all() -> None:
    """With steps each variant has exactly as many calls, with fixed rounds as many rounds."""
    by_steps = VirtualVariants(1 * MS, 30 * MS).measured(by="steps", steps=100)
    assert [s.calls for s in by_steps] == [100, 100]
    rounds = FixedRounds(rounds=35, durations_per_round=2, calls_per_duration=3)
    fixed = VirtualVariants(30 * MS, 1 * MS).measured(fixed_rounds=rounds)
    assert [(s.rounds, s.calls, len(s.block_s)) for s in fixed] == [(35, 35, 35), (35, 210, 35)]


def test_variants_take_turns_on_a_device() -> None:
    """By events, behind spins: each clock has learned what its own variant costs."""
    host = FakeHost()
    device = FakeCuda(host)

    def variant(name: str, device_ns: int) -> Variant:
        clock = CudaStepClock(device, host.now)
        task = Task(step=lambda: device.launch(enqueue_ns=20_000, device_ns=device_ns))
        first_call_s = clock.time_single_call(task)
        return Variant(name=name, task=task, clock=clock, first_call_s=first_call_s)

    samples = measure(
        [variant("eager", 2_500_000), variant("launching", 10_000), variant("fused", 2_000_000)],
        section=MeasureSection(),
        agreement=RankAgreement(),
    )
    assert [s.flags for s in samples] == [(), ("launch_bound",), ()]
    assert {s.timer for s in samples} == {"cuda_events"}
    assert min(len(s.block_s) for s in samples) >= FEWEST_BLOCKS
    reference, _, fused = samples
    assert paired_speed_up(reference, fused, 0.95).value == pytest.approx(1.25, rel=1e-3)


def test_there_are_enough_turns_for_an_interval() -> None:
    """Variants that are precise at once take the fewest turns, and long ones no untimed calls."""
    variants, begun = VirtualVariants(1.5, 1.2), []
    samples = variants.measured(on_timed=lambda: begun.append(len(variants.order)))
    assert [len(s.block_s) for s in samples] == [FEWEST_BLOCKS] * 2
    assert len(variants.order) - begun[0] == 2 * FEWEST_BLOCKS
    assert paired_speed_up(*samples, 0.95).value == pytest.approx(1.25)


def test_a_drift_that_doubles_the_times_cancels() -> None:
    """Each variant alone is in doubt, its interval wide; the speed-up is exact to a percent."""
    variants = VirtualVariants(22 * MS, 20 * MS, machine=lambda now_s, _: 1 + now_s / 3)
    samples = variants.measured()
    assert all("drifting" in s.flags for s in samples)
    speed_up = paired_speed_up(*samples, 0.95)
    assert speed_up.interval is not None
    assert speed_up.interval.low <= 1.1 <= speed_up.interval.high
    assert speed_up.interval.half_width < 0.02


def test_few_pairs_have_no_interval() -> None:
    """Five pairs of turns, as of ten calls in all, have a value only."""
    samples = VirtualVariants(22 * MS, 20 * MS).measured(by="steps", steps=5, min_rounds=1)
    speed_up = paired_speed_up(*samples, 0.95)
    assert (len(samples[0].block_s), speed_up.interval) == (5, None)
    assert speed_up.value == pytest.approx(1.1)


def walking(draws: random.Random, per_s: float) -> Course:
    """A random walk: `per_s` is its standard deviation after a second, as a logarithm."""
    last_s = level = 0.0

    def course(now_s: float, _: int) -> float:
        nonlocal last_s, level
        level += draws.gauss() * per_s * math.sqrt(max(0.0, now_s - last_s))
        last_s = now_s
        return math.exp(level)

    return course


MACHINES: dict[str, Callable[[random.Random], Course]] = {
    "independent noise": lambda draws: independent(draws, 0.05),
    "noise that lasts for ten calls": lambda draws: autoregressive(draws, 0.05, 0.9),
    "a random walk": lambda draws: noisy(walking(draws, 0.05), draws, 0.02),
    "drift": lambda draws: noisy(lambda now_s, _: 1 + 0.1 * now_s, draws, 0.03),
    "modes": lambda draws: modes(draws, 30),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("machine", MACHINES)
def test_intervals_cover_the_true_speed_up(machine: str) -> None:
    """A 95% interval covers a speed-up of 1.1x, and so one of 1x, in 92 of 100 measurements."""
    covered = 0
    for seed in range(SIMULATED):
        disturbance = MACHINES[machine](random.Random(seed))
        samples = VirtualVariants(22 * MS, 20 * MS, machine=disturbance).measured()
        interval = paired_speed_up(*samples, 0.95).interval
        covered += interval is not None and interval.low <= 1.1 <= interval.high
    assert covered / SIMULATED >= 0.92
