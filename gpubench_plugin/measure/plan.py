"""Measurement plan: calls per duration, durations per round, rounds per block."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from gpubench_plugin.core.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.config.rounds_file import FixedRounds
    from gpubench_plugin.config.sections import MeasureSection
    from gpubench_plugin.measure.clocks.base import Clock
    from gpubench_plugin.ranks.agreement import RankAgreement

# Block that is long beside what comes between two, tenths of a millisecond: a reading of the run
# queue, an agreement of the ranks, a call of the next variant that is not timed.
_BLOCK_S = 0.01

FEWEST_BLOCKS: Final = 10
"""Blocks, or turns of a variant, if time allows: the interval of a rate needs as many."""

# Duration assumed for a call that the clock cannot resolve: the tick of perf_counter_ns.
_SHORTEST_CALL_S = 1e-9


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Seconds per call: timed, and in wall time with setup, teardown and the clock's overhead."""

    timed_s: float
    wall_s: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Sizes of timed units, equal on every rank; fields as in `Samples`."""

    calls_per_duration: int
    durations_per_round: int
    rounds_per_block: int

    @property
    def durations_per_block(self) -> int:
        """Durations in a full block."""
        return self.durations_per_round * self.rounds_per_block

    @property
    def calls_per_round(self) -> int:
        """Calls of the step per round."""
        return self.durations_per_round * self.calls_per_duration

    def broadcast(self, agreement: RankAgreement) -> Plan:
        """Rank zero's plan, broadcast to every rank."""
        return Plan(**{name: agreement.decide(size) for name, size in asdict(self).items()})


@dataclass(frozen=True, kw_only=True)
class Planner:
    """Plans the blocks of one benchmark from the pace of its step.

    Calls are grouped only if the task `is_bare`: setup and teardown must run around every call.
    """

    clock: Clock
    section: MeasureSection
    is_bare: bool

    def plan(
        self, pace: Pace, *, fixed: FixedRounds | None = None, max_calls: int | None = None
    ) -> Plan:
        """Plan at this `pace`, with at most `max_calls` calls per block.

        Of `fixed` rounds only the block length depends on the pace.
        """
        per_call_s = max(pace.timed_s, _SHORTEST_CALL_S)
        max_calls = min(self.clock.queued_calls, max_calls or self.clock.queued_calls)
        if fixed is not None:
            group_size, width = fixed.calls_per_duration, fixed.durations_per_round
        else:
            group_size = self._group_size(per_call_s, max_calls)
            width = self._width(per_call_s, pace.wall_s, group_size)
            width = min(width, max(1, max_calls // group_size))
        calls_per_round = group_size * width
        round_s = calls_per_round * max(pace.wall_s, per_call_s)
        rounds = self._rounds(round_s, calls_per_round, fixed)
        return Plan(
            calls_per_duration=group_size,
            durations_per_round=width,
            rounds_per_block=max(1, min(rounds, max_calls // calls_per_round)),
        )

    def usable_rounds(self, fixed: FixedRounds) -> FixedRounds | None:
        """Return `fixed` if this clock can time such rounds of the step.

        Those of a baseline, taken of another kind of step, are dropped where it cannot.

        Raises:
            UsageProblem: it cannot, and ``measure.rounds_file`` demands them.
        """
        calls = fixed.calls_per_duration * fixed.durations_per_round
        most_calls = self.clock.queued_calls
        if fixed.calls_per_duration > 1 and not self.is_bare:
            reason = (
                f"calls_per_duration={fixed.calls_per_duration}, but setup or teardown must "
                "run around every call; allowed: 1"
            )
        elif calls > most_calls:
            timer = self.clock.timer
            reason = f"{calls} calls per round; the clock {timer} supports at most {most_calls}"
        else:
            return fixed
        if self.section.rounds_file is None:
            return None
        raise UsageProblem(f"measure.rounds_file: {self.section.rounds_file}: {reason}")

    def _group_size(self, per_call_s: float, most_calls: int) -> int:
        """Calls per duration; with ``by=steps`` a divisor, so that exactly so many run."""
        if not self.is_bare:
            return 1
        group_size = min(self.clock.group_size(per_call_s), most_calls)
        if not self.is_counted:
            return group_size
        steps = self.section.steps
        group_size = max(1, min(group_size, steps // self.section.min_rounds))
        return next(size for size in range(group_size, 0, -1) if steps % size == 0)

    def _width(self, per_call_s: float, wall_s: float, group_size: int) -> int:
        """Durations per round: `round_s` long, but few enough to leave `min_rounds` rounds."""
        section = self.section
        if self.is_counted:
            most_calls = section.steps // section.min_rounds
        else:
            most_calls = int(self._limit_s / section.min_rounds / max(wall_s, _SHORTEST_CALL_S))
        target_width = math.ceil(section.round_s / (group_size * per_call_s))
        return max(1, min(target_width, most_calls // group_size))

    def _rounds(self, round_s: float, calls_per_round: int, fixed: FixedRounds | None) -> int:
        """Rounds per block, as the clock needs, within the time limit."""
        round_count = math.ceil(
            max(self.clock.block_s / round_s, self.clock.block_calls / calls_per_round)
        )
        if not self.clock.block_s:
            section = self.section
            least_s = section.min_time_s if section.by == "ci" else section.time_s
            tenth = self._tenth(least_s / round_s, calls_per_round, fixed)
            round_count = max(round_count, min(math.ceil(_BLOCK_S / round_s), tenth))
        if self.is_counted:
            return round_count
        limit = remaining_rounds(self._limit_s, round_s)
        return min(round_count, max(self.clock.fewest_calls, limit))

    def rounds_per_turn(self, plan: Plan, pace: Pace, fixed: FixedRounds | None) -> int:
        """Rounds in a turn: a block, but few enough for :data:`FEWEST_BLOCKS`."""
        most_rounds = self._limit_s / (plan.calls_per_round * pace.wall_s)
        rounds = min(
            plan.rounds_per_block,
            self._tenth(most_rounds, plan.calls_per_round, fixed),
            self.clock.queued_calls // plan.calls_per_round,
        )
        return max(math.ceil(self.clock.fewest_calls / plan.calls_per_round), rounds)

    def _tenth(self, rounds: float, calls_per_round: int, fixed: FixedRounds | None) -> int:
        """Share of one of :data:`FEWEST_BLOCKS` in the rounds, or those fixed or counted."""
        if fixed is not None:
            rounds = fixed.rounds
        elif self.is_counted:
            rounds = self.section.steps / calls_per_round
        return int(rounds / FEWEST_BLOCKS)

    @property
    def is_counted(self) -> bool:
        """Whether ``measure.by=steps`` asks for a number of calls."""
        return self.section.by == "steps"

    @property
    def _limit_s(self) -> float:
        return self.section.max_time_s if self.section.by == "ci" else self.section.time_s


def plan_turns(
    planners: Sequence[Planner], paces: Sequence[Pace], fixed: FixedRounds | None
) -> list[Plan]:
    """Plan of each variant's turns, which a single step has as long as its clock needs.

    The rounds of the last variant are those that are `fixed`; where they are, or the calls are
    counted, all have as many rounds in a turn. Counted calls are grouped alike, by the fastest.
    """
    if fixed is None and planners[0].is_counted:
        paces = [min(paces, key=lambda pace: pace.timed_s)] * len(paces)
    last = len(planners) - 1
    plans = [
        planner.plan(pace, fixed=fixed if number == last else None)
        for number, (planner, pace) in enumerate(zip(planners, paces, strict=True))
    ]
    if last == 0:
        return plans
    rounds = [
        planner.rounds_per_turn(plan, pace, fixed)
        for planner, plan, pace in zip(planners, plans, paces, strict=True)
    ]
    if fixed is not None:
        rounds = [min(rounds)] * len(rounds)
    return [
        replace(plan, rounds_per_block=count) for plan, count in zip(plans, rounds, strict=True)
    ]


def remaining_rounds(left_s: float, round_s: float) -> int:
    """Number of rounds of that length in the remaining time, at least one."""
    return max(1, int(left_s / max(round_s, _SHORTEST_CALL_S)))
