"""Sizes of durations, rounds and blocks, from the pace of the step."""

from __future__ import annotations

from typing import Any

import pytest

from gpubench_plugin.config.rounds_file import FixedRounds
from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.measure.clocks.base import Clock
from gpubench_plugin.measure.clocks.cuda_kernel import CudaKernelClock
from gpubench_plugin.measure.clocks.cuda_step import CudaStepClock
from gpubench_plugin.measure.clocks.host import CpuClock
from gpubench_plugin.measure.plan import Pace, Plan, Planner, remaining_rounds
from tests.support.fake_cuda import FakeCuda, FakeHost

CPU = CpuClock()
STEP = CudaStepClock(FakeCuda(FakeHost()))
KERNEL = CudaKernelClock(FakeCuda(FakeHost()))


def plan(
    per_call_s: float,
    *,
    clock: Clock = CPU,
    world_size: int = 1,
    bare: bool = True,
    wall_s: float | None = None,
    most_calls: int | None = None,
    **keys: Any,
) -> tuple[int, int, int]:
    """Calls per duration, durations per round, rounds per block."""
    planner = Planner(
        clock=clock, section=MeasureSection(**keys), world_size=world_size, is_bare=bare
    )
    made = planner.plan(Pace(timed_s=per_call_s, wall_s=wall_s or per_call_s), max_calls=most_calls)
    return made.calls_per_duration, made.durations_per_round, made.rounds_per_block


@pytest.mark.parametrize(
    ("per_call_s", "expected"),
    [(1.3e-7, (385, 20, 1)), (3e-5, (1, 34, 1)), (3e-4, (1, 4, 1)), (0.002, (1, 1, 1))],
)
def test_a_round_lasts_a_millisecond(per_call_s: float, expected: tuple[int, int, int]) -> None:
    """On one rank of a CPU a block is one round: the fewest durations that last long enough."""
    assert expected == plan(per_call_s)


def test_several_ranks_agree_less_often() -> None:
    """With several ranks a block lasts about 10 ms."""
    assert plan(3e-4, world_size=2) == (1, 4, 9)
    assert plan(0.02, world_size=2) == (1, 1, 1)


@pytest.mark.parametrize(
    ("per_call_s", "expected"),
    [(0.001, (1, 1, 50)), (0.03, (1, 1, 4)), (0.5, (1, 1, 4)), (1.0, (1, 1, 3)), (9.0, (1, 1, 2))],
)
def test_a_block_of_cuda_steps_is_long_but_within_the_limit(
    per_call_s: float, expected: tuple[int, int, int]
) -> None:
    """About 50 ms and four steps, fewer where these take longer than measuring may, but two."""
    assert expected == plan(per_call_s, clock=STEP)


def test_the_queue_of_a_device_is_bounded() -> None:
    """A block of short steps holds no more calls than the clock queues."""
    grouped, width, rounds = plan(2.5e-6, clock=STEP)
    assert (grouped, width) == (400, 1)
    assert grouped * width * rounds == STEP.queued_calls


def test_frozen_rounds_are_queued_only_as_far_as_the_clock_allows() -> None:
    """A block of short steps holds as many of them as the clock queues; one fits in any case."""
    planner = Planner(clock=STEP, section=MeasureSection(), world_size=1, is_bare=True)
    pace = Pace(timed_s=1e-6, wall_s=1e-6)
    for width, rounds in ((40, STEP.queued_calls // 40), (STEP.queued_calls, 1)):
        frozen = FixedRounds(rounds=10_000, durations_per_round=width, calls_per_duration=1)
        assert planner.plan(pace, fixed=frozen).rounds_per_block == rounds


def test_short_kernels_are_grouped() -> None:
    """Of a kernel of 5 µs so many are timed at a time as last a millisecond."""
    assert plan(5e-6, clock=KERNEL) == (200, 1, 50)


def test_a_setup_forbids_grouping() -> None:
    """Where something runs between the calls, each is timed alone."""
    assert plan(3e-6, bare=False) == (1, 334, 1)


def test_a_long_setup_shortens_the_round() -> None:
    """Ten rounds fit into the time limit also where the setup takes most of it."""
    assert plan(1e-5, bare=False, wall_s=0.09) == (1, 3, 1)
    assert plan(1e-5, bare=False, wall_s=5.0) == (1, 1, 1)


@pytest.mark.parametrize(
    ("steps", "grouped"), [(50, 5), (10_000, 500), (7, 1), (10_007, 1), (1, 1)]
)
def test_steps_are_grouped_by_a_divisor(steps: int, grouped: int) -> None:
    """By steps, a group divides them, and leaves ten durations where it can."""
    assert grouped == plan(1e-7, by="steps", steps=steps)[0]


def test_steps_leave_rounds_to_compare() -> None:
    """By steps, a round is at most a tenth of them, even if that is shorter than round_s."""
    assert plan(1e-5, by="steps", steps=50) == (1, 5, 1)


def test_a_step_too_short_to_be_seen_is_planned_all_the_same() -> None:
    """A duration of zero, on a clock that ticks coarsely, is taken for a nanosecond."""
    assert plan(0.0) == (50_000, 20, 1)


def test_the_calls_of_a_block_can_be_limited() -> None:
    """The warm-up begins with few calls, whatever the pace seems to be."""
    assert plan(0.0, most_calls=1) == (1, 1, 1)
    assert plan(1e-7, most_calls=100) == (100, 1, 1)


def test_rank_zeros_plan_is_taken() -> None:
    """Every number of an agreed plan is what the agreement says."""

    class Rank1:
        world_size = 2

        def __init__(self) -> None:
            self.decided = iter([7, 8, 9])

        def decide(self, proposal: int) -> int:
            return next(self.decided)

        def barrier(self) -> None: ...

    own = Plan(calls_per_duration=1, durations_per_round=2, rounds_per_block=3)
    assert own.broadcast(Rank1()) == Plan(
        calls_per_duration=7, durations_per_round=8, rounds_per_block=9
    )


@pytest.mark.parametrize(
    ("left_s", "round_s", "rounds"), [(1.0, 0.3, 3), (1.0, 4.0, 1), (-1.0, 1.0, 1)]
)
def test_at_least_one_round_fits(left_s: float, round_s: float, rounds: int) -> None:
    """What is left of the time holds whole rounds, and one in any case."""
    assert rounds == remaining_rounds(left_s, round_s)
