"""Measurement plan: calls per duration, durations per round, rounds per block."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from gpubench_plugin.errors import UsageProblem

if TYPE_CHECKING:
    from gpubench_plugin.config import FixedRounds, MeasureSection
    from gpubench_plugin.distributed import RankAgreement
    from gpubench_plugin.measure.clocks import Clock

# Agreeing costs the ranks some tenths of a millisecond: a block makes that small.
_RANKS_BLOCK_S = 0.01

# What a call is taken to last where the clock ticks too coarsely to see it.
_SHORTEST_CALL_S = 1e-9


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Seconds per call, by the clock and by wall time.

    They differ by setup, teardown, and what the clock itself does.
    """

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


class Planner:
    """Plans the blocks of one benchmark from the pace of its step.

    Blocks are longer where several ranks must agree after each. Only the calls of a `is_bare` step
    may be grouped: a setup or teardown forbids it.
    """

    def __init__(
        self, *, clock: Clock, section: MeasureSection, world_size: int, is_bare: bool
    ) -> None:
        self._clock = clock
        self._section = section
        self._world_size = world_size
        self._is_bare = is_bare

    def plan(self, pace: Pace, *, max_calls: int | None = None) -> Plan:
        """The plan at this pace, with at most `most_calls` calls per block."""
        per_call_s = max(pace.timed_s, _SHORTEST_CALL_S)
        max_calls = min(self._clock.queued_calls, max_calls or self._clock.queued_calls)
        grouped = self._grouped(per_call_s, max_calls)
        most_durations = max(1, max_calls // grouped)
        width = min(self._width(per_call_s, pace.wall_s, grouped), most_durations)
        rounds = self._rounds(per_call_s, pace.wall_s, grouped * width)
        return Plan(
            calls_per_duration=grouped,
            durations_per_round=width,
            rounds_per_block=max(1, min(rounds, most_durations // width)),
        )

    def usable_rounds(self, fixed: FixedRounds) -> FixedRounds | None:
        """The fixed rounds, if this clock can time such a step that way.

        Those of a baseline are dropped where it cannot: it was another kind of step then.

        Raises:
            UsageProblem: it cannot, and a file asks for them.
        """
        error_text = self._unusable_reason(fixed)
        if error_text and self._section.rounds_file is not None:
            raise UsageProblem(f"measure.rounds_file: {self._section.rounds_file}: {error_text}")
        return None if error_text else fixed

    def _unusable_reason(self, fixed: FixedRounds) -> str:
        """Why they cannot be timed; empty if they can."""
        calls = fixed.calls_per_duration * fixed.durations_per_round
        if fixed.calls_per_duration > 1 and not self._is_bare:
            return (
                f"calls_per_duration={fixed.calls_per_duration}, but setup or teardown must "
                "run around every call; allowed: 1"
            )
        if calls > self._clock.queued_calls:
            return (
                f"{calls} calls per round; the clock {self._clock.timer} supports at most "
                f"{self._clock.queued_calls}"
            )
        return ""

    def fixed_plan(self, fixed: FixedRounds, pace: Pace) -> Plan:
        """The plan with fixed rounds; only the block length depends on the pace."""
        per_call_s = max(pace.timed_s, _SHORTEST_CALL_S)
        calls = fixed.calls_per_duration * fixed.durations_per_round
        rounds = self._rounds(per_call_s, pace.wall_s, calls)
        return Plan(
            calls_per_duration=fixed.calls_per_duration,
            durations_per_round=fixed.durations_per_round,
            rounds_per_block=max(1, min(rounds, self._clock.queued_calls // calls)),
        )

    def _grouped(self, per_call_s: float, most_calls: int) -> int:
        """Calls per duration; with ``by=steps`` a divisor, so that exactly so many run."""
        if not self._is_bare:
            return 1
        group_size = min(self._clock.group_size(per_call_s), most_calls)
        if self._section.by != "steps":
            return group_size
        steps = self._section.steps
        group_size = max(1, min(group_size, steps // self._section.min_rounds))
        return next(size for size in range(group_size, 0, -1) if steps % size == 0)

    def _width(self, per_call_s: float, wall_s: float, grouped: int) -> int:
        """Durations per round: long enough, but few enough to leave rounds to compare."""
        section = self._section
        if section.by == "steps":
            most_calls = section.steps // section.min_rounds
        else:
            most_calls = int(self._limit_s / section.min_rounds / max(wall_s, _SHORTEST_CALL_S))
        target_width = math.ceil(section.round_s / (grouped * per_call_s))
        return max(1, min(target_width, most_calls // grouped))

    def _rounds(self, per_call_s: float, wall_s: float, calls_per_round: int) -> int:
        """Rounds per block: as needed by clock and ranks, within the time limit."""
        shortest_s = max(
            self._clock.block_s,
            self._clock.block_calls * per_call_s,
            _RANKS_BLOCK_S if self._world_size > 1 else 0.0,
        )
        round_count = math.ceil(shortest_s / (calls_per_round * per_call_s))
        if self._section.by == "steps":
            return round_count
        return min(round_count, remaining_rounds(self._limit_s, calls_per_round * wall_s))

    @property
    def _limit_s(self) -> float:
        return self._section.max_time_s if self._section.by == "ci" else self._section.time_s


def remaining_rounds(left_s: float, round_s: float) -> int:
    """Number of rounds of that length in the remaining time, at least one."""
    return max(1, int(left_s / max(round_s, _SHORTEST_CALL_S)))
