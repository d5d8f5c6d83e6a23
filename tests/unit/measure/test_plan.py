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
    bare: bool = True,
    wall_s: float | None = None,
    most_calls: int | None = None,
    **keys: Any,
) -> tuple[int, int, int]:
    """Calls per duration, durations per round, rounds per block."""
    planner = Planner(clock=clock, section=MeasureSection(**keys), is_bare=bare)
    made = planner.plan(Pace(timed_s=per_call_s, wall_s=wall_s or per_call_s), max_calls=most_calls)
    return made.calls_per_duration, made.durations_per_round, made.rounds_per_block


SETUP: dict[str, Any] = {"bare": False}


@pytest.mark.parametrize(
    ("per_call_s", "options", "expected"),
    [
        *(
            pytest.param(per_call_s, {}, expected, id=f"a millisecond of {per_call_s} s")
            for per_call_s, expected in (
                *((1.3e-7, (385, 20, 10)), (3e-5, (1, 34, 10)), (3e-4, (1, 4, 9))),
                *((0.002, (1, 1, 5)), (0.02, (1, 1, 1)), (0.0, (50_000, 20, 1))),
            )
        ),
        pytest.param(3e-4, {"min_time_s": 0.02}, (1, 4, 1), id="a tenth of the least time"),
        pytest.param(3e-4, {"by": "time", "time_s": 0.05}, (1, 4, 4), id="a tenth of the time"),
        pytest.param(3e-4, {"by": "steps", "steps": 100}, (1, 4, 2), id="a tenth of the calls"),
        *(
            pytest.param(per_call_s, {"clock": STEP}, (1, 1, rounds), id=f"CUDA, {per_call_s} s")
            for per_call_s, rounds in ((0.001, 50), (0.03, 4), (0.5, 4), (1.0, 3), (9.0, 2))
        ),
        pytest.param(5e-6, {"clock": KERNEL}, (200, 1, 50), id="kernels"),
        pytest.param(3e-6, SETUP, (1, 334, 10), id="a setup forbids grouping"),
        pytest.param(1e-4, {**SETUP, "wall_s": 1e-3}, (1, 10, 1), id="a setup is time"),
        pytest.param(1e-5, {**SETUP, "wall_s": 0.09}, (1, 3, 1), id="a long setup"),
        pytest.param(1e-5, {**SETUP, "wall_s": 5.0}, (1, 1, 1), id="a very long setup"),
        pytest.param(1e-5, {"by": "steps", "steps": 50}, (1, 5, 1), id="a tenth of the steps"),
        pytest.param(0.0, {"most_calls": 1}, (1, 1, 1), id="one call"),
        pytest.param(1e-7, {"most_calls": 100}, (100, 1, 1), id="few calls"),
    ],
)
def test_rounds_and_blocks_are_as_long_as_the_clock_needs(
    per_call_s: float, options: dict[str, Any], expected: tuple[int, int, int]
) -> None:
    """Within the limits of time and calls; a call that the clock cannot see is a nanosecond."""
    assert plan(per_call_s, **options) == expected


def test_the_queue_of_a_device_is_bounded() -> None:
    """A block of short steps holds no more calls than the clock queues."""
    grouped, width, rounds = plan(2.5e-6, clock=STEP)
    assert (grouped, width) == (400, 1)
    assert grouped * width * rounds == STEP.queued_calls


def test_frozen_rounds_are_queued_only_as_far_as_the_clock_allows() -> None:
    """A block of short steps holds as many of them as the clock queues; one fits in any case."""
    planner = Planner(clock=STEP, section=MeasureSection(), is_bare=True)
    pace = Pace(timed_s=1e-6, wall_s=1e-6)
    for width, rounds in ((40, STEP.queued_calls // 40), (STEP.queued_calls, 1)):
        frozen = FixedRounds(rounds=10_000, durations_per_round=width, calls_per_duration=1)
        assert planner.plan(pace, fixed=frozen).rounds_per_block == rounds


@pytest.mark.parametrize(
    ("steps", "grouped"), [(50, 5), (10_000, 500), (7, 1), (10_007, 1), (1, 1)]
)
def test_steps_are_grouped_by_a_divisor(steps: int, grouped: int) -> None:
    """By steps, a group divides them, and leaves ten durations where it can."""
    assert grouped == plan(1e-7, by="steps", steps=steps)[0]


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
