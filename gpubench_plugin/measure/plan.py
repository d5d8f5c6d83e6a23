"""How many calls make a duration, how many durations a round, and how many rounds a block."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from gpubench_plugin.errors import UsageProblem

if TYPE_CHECKING:
    from gpubench_plugin.config import FrozenRounds, MeasureSection
    from gpubench_plugin.distributed import RankAgreement
    from gpubench_plugin.measure.clocks import Clock

# Agreeing costs the ranks some tenths of a millisecond: a block makes that small.
_RANKS_BLOCK_S = 0.01

# What a call is taken to last where the clock ticks too coarsely to see it.
_SHORTEST_CALL_S = 1e-9


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Seconds per call: as the clock times it, and as the wall clock sees it go by.

    They differ by setup, teardown, and what the clock itself does.
    """

    timed_s: float
    wall_s: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The sizes of what is timed, equal on every rank; their meanings stand in `Samples`."""

    calls_per_duration: int
    durations_per_round: int
    rounds_per_block: int

    @property
    def durations_per_block(self) -> int:
        """Durations in a block of full size."""
        return self.durations_per_round * self.rounds_per_block

    @property
    def calls_per_round(self) -> int:
        """Calls of the step in a round."""
        return self.durations_per_round * self.calls_per_duration

    def agreed(self, agreement: RankAgreement) -> Plan:
        """Rank zero's plan, on every rank."""
        return Plan(**{name: agreement.decide(size) for name, size in asdict(self).items()})


class Planner:
    """Plans for one benchmark from the pace of its step.

    Blocks are longer where several ranks must agree after each. Only the calls of a `bare` step may
    be grouped: a setup or teardown forbids it.
    """

    def __init__(
        self, *, clock: Clock, section: MeasureSection, world_size: int, bare: bool
    ) -> None:
        self._clock = clock
        self._section = section
        self._world_size = world_size
        self._bare = bare

    def plan(self, pace: Pace, *, most_calls: int | None = None) -> Plan:
        """The plan at this pace, of at most `most_calls` calls in a block."""
        per_call_s = max(pace.timed_s, _SHORTEST_CALL_S)
        most_calls = min(self._clock.queued_calls, most_calls or self._clock.queued_calls)
        grouped = self._grouped(per_call_s, most_calls)
        most_durations = max(1, most_calls // grouped)
        width = min(self._width(per_call_s, pace.wall_s, grouped), most_durations)
        rounds = self._rounds(per_call_s, pace.wall_s, grouped * width)
        return Plan(
            calls_per_duration=grouped,
            durations_per_round=width,
            rounds_per_block=max(1, min(rounds, most_durations // width)),
        )

    def usable(self, frozen: FrozenRounds) -> FrozenRounds | None:
        """The rounds as they were frozen, if such a step can be timed so on this clock.

        Those of a baseline are dropped where it cannot: it was another kind of step then.

        Raises:
            UsageProblem: it cannot, and a file asks for them.
        """
        problem = self._problem(frozen)
        if problem and self._section.rounds_file is not None:
            raise UsageProblem(f"measure.rounds_file: {self._section.rounds_file}: {problem}")
        return None if problem else frozen

    def _problem(self, frozen: FrozenRounds) -> str:
        """Why they cannot be timed, or nothing."""
        calls = frozen.calls_per_duration * frozen.durations_per_round
        if frozen.calls_per_duration > 1 and not self._bare:
            return (
                f"calls_per_duration={frozen.calls_per_duration}, but a setup or teardown runs "
                "around every call; allowed: 1"
            )
        if calls > self._clock.queued_calls:
            return (
                f"a round of {calls} calls; the clock {self._clock.timer} allows up to "
                f"{self._clock.queued_calls}"
            )
        return ""

    def frozen(self, frozen: FrozenRounds, pace: Pace) -> Plan:
        """The plan that was fixed beforehand; only the length of blocks depends on the pace."""
        per_call_s = max(pace.timed_s, _SHORTEST_CALL_S)
        calls = frozen.calls_per_duration * frozen.durations_per_round
        rounds = self._rounds(per_call_s, pace.wall_s, calls)
        return Plan(
            calls_per_duration=frozen.calls_per_duration,
            durations_per_round=frozen.durations_per_round,
            rounds_per_block=max(1, min(rounds, self._clock.queued_calls // calls)),
        )

    def _grouped(self, per_call_s: float, most_calls: int) -> int:
        """Calls per duration. By steps, a divisor of them: exactly so many are run."""
        if not self._bare:
            return 1
        wanted = min(self._clock.grouped(per_call_s), most_calls)
        if self._section.by != "steps":
            return wanted
        steps = self._section.steps
        wanted = max(1, min(wanted, steps // self._section.min_rounds))
        return next(size for size in range(wanted, 0, -1) if steps % size == 0)

    def _width(self, per_call_s: float, wall_s: float, grouped: int) -> int:
        """Durations per round: enough for its length, few enough to have rounds to compare."""
        section = self._section
        if section.by == "steps":
            most_calls = section.steps // section.min_rounds
        else:
            most_calls = int(self._limit_s / section.min_rounds / max(wall_s, _SHORTEST_CALL_S))
        wanted = math.ceil(section.round_s / (grouped * per_call_s))
        return max(1, min(wanted, most_calls // grouped))

    def _rounds(self, per_call_s: float, wall_s: float, calls_per_round: int) -> int:
        """Rounds per block: as long as clock and ranks want it, never beyond the time limit."""
        shortest_s = max(
            self._clock.block_s,
            self._clock.block_calls * per_call_s,
            _RANKS_BLOCK_S if self._world_size > 1 else 0.0,
        )
        wanted = math.ceil(shortest_s / (calls_per_round * per_call_s))
        if self._section.by == "steps":
            return wanted
        return min(wanted, fitting_rounds(self._limit_s, calls_per_round * wall_s))

    @property
    def _limit_s(self) -> float:
        return self._section.max_time_s if self._section.by == "ci" else self._section.time_s


def fitting_rounds(left_s: float, round_s: float) -> int:
    """How many rounds of that length the time that is left holds, at least one."""
    return max(1, int(left_s / max(round_s, _SHORTEST_CALL_S)))
