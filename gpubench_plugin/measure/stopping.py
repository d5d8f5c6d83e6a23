"""Stopping rules: by confidence interval, time, number of calls, or number of rounds."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from gpubench_plugin.measure.plan import remaining_rounds

if TYPE_CHECKING:
    from gpubench_plugin.config import MeasureSection
    from gpubench_plugin.measure.recording import Recording

# By default there are looks at 10, 20, 40, 80, 160 and 320 of at most 500 rounds, one after the
# least time and one at the end: eight, which share the error.
_LOOKS = 8


# The fewest rounds of a long step may take so many times the limit of time. They come before it, as
# an interval needs them, but a step of a minute would take the time after which it is a hang.
_PATIENCE = 10


class StoppingRule(ABC):
    """Decides between blocks how long the next one is."""

    def __init__(self, section: MeasureSection) -> None:
        self._section = section

    @abstractmethod
    def durations(self, recording: Recording, elapsed_s: float) -> int:
        """Number of durations to time next; 0 to stop."""

    def converged(self, recording: Recording) -> bool:
        """Whether the rule stopped at its goal rather than at a limit."""
        return True


class ByInterval(StoppingRule):
    """Stops when a check finds the interval narrow enough, else at the limits.

    Never before the least time and the fewest rounds: until then nothing but the limit of time
    counts, which is a longer one while rounds are missing. What other processes hold up goes on,
    by as many rounds as the limit of time allows, until the share of the time that they took of
    all blocks is small.
    """

    def durations(self, recording: Recording, elapsed_s: float) -> int:
        """A block, shortened to the remaining rounds and time."""
        rounds_left: float = self._section.max_rounds - recording.rounds
        missing = self._section.required_rounds - recording.rounds
        if missing > 0 or elapsed_s < self._section.min_time_s or recording.contended:
            rounds_left = math.inf
        elif rounds_left <= 0 or (
            self.converged(recording) and not (recording.dependent or recording.is_unreliable)
        ):
            return 0
        durations = _within(self._section.max_time_s, recording, elapsed_s, rounds_left)
        if durations or missing <= 0:
            return durations
        return _within(_PATIENCE * self._section.max_time_s, recording, elapsed_s, missing)

    def converged(self, recording: Recording) -> bool:
        """Whether the half-width of the last check is small enough."""
        return recording.half_width <= self._section.ci_half_width


class ByTime(StoppingRule):
    """Stops when the time window is over."""

    def durations(self, recording: Recording, elapsed_s: float) -> int:
        """A block, shortened to the remaining window."""
        return _within(self._section.time_s, recording, elapsed_s)


class BySteps(StoppingRule):
    """Stops after exactly so many calls."""

    def durations(self, recording: Recording, elapsed_s: float) -> int:
        """A block, shortened to the remaining calls."""
        plan = recording.plan
        durations_missing = self._section.steps // plan.calls_per_duration - recording.durations
        return min(plan.durations_per_block, durations_missing)


class ByRounds(StoppingRule):
    """Stops after a fixed number of rounds.

    Those of a file are timed however long they take: who wrote it wants them. Those of a baseline
    end with the limit of time, since the step may be a hundred times slower by now.
    """

    def __init__(self, section: MeasureSection, rounds: int) -> None:
        super().__init__(section)
        self._rounds = rounds

    def durations(self, recording: Recording, elapsed_s: float) -> int:
        """A block, shortened to the remaining rounds."""
        missing = self._rounds - recording.rounds
        return _within(self._limit_s, recording, elapsed_s, missing) if missing > 0 else 0

    def converged(self, recording: Recording) -> bool:
        """Whether all rounds were timed."""
        return recording.rounds >= self._rounds

    @property
    def _limit_s(self) -> float:
        section = self._section
        if section.rounds_file is not None or section.by == "steps":
            return math.inf
        return _PATIENCE * (section.time_s if section.by == "time" else section.max_time_s)


class CheckSchedule:
    """Schedule of interval checks: at 10, 20, 40 … rounds by default, after the minimum time.

    Few, because every further look at an interval that happens to be narrow for a moment makes
    it less true, and because each sorts all rounds. `confidence` is that of a look: all of them
    together err about as often as the one interval that is reported.
    """

    def __init__(self, section: MeasureSection) -> None:
        self._min_rounds = self._next_check = section.required_rounds
        self._least_s = section.min_time_s
        self.confidence = 1 - (1 - section.confidence) / _LOOKS

    def due(self, rounds: int, elapsed_s: float) -> bool:
        """Whether the next check is due; advances the schedule."""
        if rounds < self._min_rounds or (rounds < self._next_check and elapsed_s < self._least_s):
            return False
        if elapsed_s >= self._least_s:
            self._least_s = math.inf
        while self._next_check <= rounds:
            self._next_check *= 2
        return True


def make_rule(section: MeasureSection, frozen_rounds: int = 0) -> StoppingRule:
    """The rule named by ``measure.by``, unless the number of rounds is fixed."""
    if frozen_rounds:
        return ByRounds(section, frozen_rounds)
    match section.by:
        case "ci":
            return ByInterval(section)
        case "time":
            return ByTime(section)
        case "steps":
            return BySteps(section)


def _within(
    limit_s: float, recording: Recording, elapsed_s: float, rounds_left: float = math.inf
) -> int:
    """Durations of a block within the limits, estimated from the rounds so far.

    There is a first block whatever the limits.
    """
    left_s = limit_s - elapsed_s
    rounds = min(recording.plan.rounds_per_block, rounds_left)
    if recording.rounds and left_s < math.inf:
        if left_s <= 0:
            return 0
        rounds = min(rounds, remaining_rounds(left_s, elapsed_s / recording.rounds))
    return int(rounds) * recording.plan.durations_per_round
