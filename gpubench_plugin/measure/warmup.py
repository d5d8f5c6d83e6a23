"""Warm-up: untimed rounds until the step is steady."""

from __future__ import annotations

from array import array
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from gpubench_plugin.measure.plan import Pace, Plan, Planner, remaining_rounds
from gpubench_plugin.measure.recording import round_medians
from gpubench_plugin.measure.trend import FEWEST, is_trending

if TYPE_CHECKING:
    from gpubench_plugin.config import MeasureSection
    from gpubench_plugin.distributed import RankAgreement
    from gpubench_plugin.measure.clocks import Block, Clock, Task

# The rounds that are looked at: 50 ms of a short step, 0.1 s of one of 2 ms. A trend of 2 % within
# them is seen, and a start that was slow is out of sight as many rounds later.
_TAIL = 50
_RECENT = 5
_ACCELERATOR_S = 0.5
_CPU_S = 0.1
# A first guess of the pace may be far too fast: a block has at most ten times the calls of the
# one before.
_GROWTH = 10


def warm_up(
    task: Task, *, clock: Clock, section: MeasureSection, agreement: RankAgreement
) -> WarmUp:
    """Run rounds until the step is steady, or the limits of `section` are reached.

    At least `warmup_iterations` calls and `warmup_s` seconds; then until the last rounds (ten at
    least, fifty at most) have no trend beyond `steady_tolerance`, through `warmup_max_rounds`
    further rounds or `warmup_max_s` in all. What ends measuring has no part in it.
    """
    planner = Planner(
        clock=clock,
        section=section.model_copy(update={"by": "ci"}),
        world_size=agreement.world_size,
        is_bare=task.is_bare,
    )
    warm = WarmUp(clock, section)
    while agreement.decide(int(warm.goes_on())):
        plan = warm.next_plan(planner).broadcast(agreement)
        start = clock.now()
        block = clock.block(
            task,
            durations=plan.durations_per_block,
            calls_per_duration=plan.calls_per_duration,
        )
        warm.add(block, plan, wall_s=(clock.now() - start) * 1e-9)
    return warm


class WarmUp:
    """Warm-up progress on one rank.

    `durations_s` are the seconds of each group of calls that was timed together, so that their
    sum is the time spent; `pace` is that of the last rounds.
    """

    def __init__(self, clock: Clock, section: MeasureSection) -> None:
        self._now = clock.now
        self._start_ns = clock.now()
        self._section = section
        shortest_s = _ACCELERATOR_S if clock.accelerator else _CPU_S
        self._shortest_s = shortest_s if section.warmup_s is None else section.warmup_s
        self._rounds_s: list[float] = []
        self._rounds_to_go = section.warmup_max_rounds
        self._last_block_calls = 0
        self._long_enough = False
        self.durations_s = array("d")
        self.calls = 0
        self.pace = Pace(timed_s=0.0, wall_s=0.0)

    @property
    def steady(self) -> bool:
        """Whether the last rounds are sufficient and show no trend."""
        rounds_s = self._rounds_s
        return len(rounds_s) >= FEWEST and not is_trending(rounds_s, self._section.steady_tolerance)

    @property
    def tail_s(self) -> tuple[float, ...]:
        """The last third of the rounds kept, those that a trend would have moved; five at least."""
        return tuple(self._rounds_s[-max(_RECENT, len(self._rounds_s) // 3) :])

    def goes_on(self) -> bool:
        """Whether neither the step is steady nor a limit reached."""
        if self._elapsed_s() >= self._section.warmup_max_s:
            return False
        return not (self._long_enough and (self.steady or self._rounds_to_go <= 0))

    def next_plan(self, planner: Planner) -> Plan:
        """Next block: a single call first, then within the time limit."""
        plan = planner.plan(self.pace, max_calls=max(1, _GROWTH * self._last_block_calls))
        fitting = remaining_rounds(
            self._section.warmup_max_s - self._elapsed_s(), plan.calls_per_round * self.pace.wall_s
        )
        return replace(plan, rounds_per_block=min(plan.rounds_per_block, fitting))

    def add(self, block: Block, plan: Plan, *, wall_s: float) -> None:
        """Add a block of that plan, which took `wall_s` by the wall clock."""
        rounds_s = round_medians(block.durations_s, plan.durations_per_round)
        if self._long_enough:
            self._rounds_to_go -= len(rounds_s)
        # Only what is looked at again is kept.
        self._rounds_s = [*self._rounds_s, *rounds_s][-_TAIL:]
        self.durations_s.extend(seconds * plan.calls_per_duration for seconds in block.durations_s)
        self.calls += block.calls
        self._last_block_calls = block.calls
        self._long_enough = (
            self.calls >= self._section.warmup_iterations and self._elapsed_s() >= self._shortest_s
        )
        # Before, the rounds kept may be those of the first, slow calls.
        recent_s = self._rounds_s[-_RECENT:] if self._long_enough else rounds_s
        self.pace = Pace(timed_s=median(recent_s), wall_s=wall_s / block.calls)

    def _elapsed_s(self) -> float:
        return (self._now() - self._start_ns) * 1e-9
