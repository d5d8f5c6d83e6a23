"""Stopping rules, by interval, time, number of calls or of rounds, and progress towards them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from gpubench_plugin.measure.plan import remaining_rounds

if TYPE_CHECKING:
    from gpubench_plugin.config.sections import MeasureSection
    from gpubench_plugin.measure.recording import TimedBlocks

# Checks of the interval, which share its error: by default after the minimum time and after 13, 25,
# 50, 100, 200 and, for those that lack one, 300 of at most 400 rounds.
_CHECKS = 8

# Factor of the time limit that the minimum number of rounds may take: an interval needs them, but
# those of a step of a minute must end before the timeout.
_PATIENCE = 10


@dataclass(frozen=True)
class StoppingRule(ABC):
    """Stopping rule: the length of the next block."""

    section: MeasureSection

    @abstractmethod
    def durations(self, recording: TimedBlocks, elapsed_s: float) -> int:
        """Number of durations to time next; 0 to stop."""

    @abstractmethod
    def remaining_s(self, recording: TimedBlocks, elapsed_s: float) -> float | None:
        """Estimated seconds until it stops, at the pace so far; None if nothing is known yet."""


class ByInterval(StoppingRule):
    """Stops when a check finds the interval narrow enough, else at the limits of rounds and time.

    Before the minimum time and rounds only the time limit counts, times :data:`_PATIENCE` while
    rounds are missing.
    """

    def durations(self, recording: TimedBlocks, elapsed_s: float) -> int:
        """A block, shortened to the remaining rounds and time."""
        rounds_left: float = self._most_rounds(recording) - recording.rounds
        missing = self.section.required_rounds - recording.rounds
        if missing > 0 or elapsed_s < self.section.min_time_s:
            rounds_left = math.inf
        elif rounds_left <= 0 or (
            recording.half_width <= self.section.ci_half_width
            and not (recording.dependent or recording.is_unreliable)
        ):
            return 0
        durations = _within(self.section.max_time_s, recording, elapsed_s, rounds_left)
        if durations or missing <= 0:
            return durations
        return _within(_PATIENCE * self.section.max_time_s, recording, elapsed_s, missing)

    def _most_rounds(self, recording: TimedBlocks) -> int:
        """All while they have no interval, as phases of machine or step hide it; else half."""
        return -(-self.section.max_rounds // (1 if recording.lacks_interval else 2))

    def remaining_s(self, recording: TimedBlocks, elapsed_s: float) -> float | None:
        """Until the check at which the interval, narrowing with the root of the rounds, will do."""
        if recording.half_width == math.inf:
            return None
        section = self.section
        ratio = max(1.0, recording.half_width / section.ci_half_width)
        # The rounds double from check to check.
        doublings = math.ceil(2 * math.log2(ratio))
        rounds = min(recording.checked_rounds * 2.0**doublings, self._most_rounds(recording))
        left_s = (rounds - recording.rounds) * elapsed_s / recording.rounds
        left_s = max(left_s, section.min_time_s - elapsed_s, 0.0)
        return min(left_s, max(0.0, section.max_time_s - elapsed_s))


class ByTime(StoppingRule):
    """Stops when the time window is over."""

    def durations(self, recording: TimedBlocks, elapsed_s: float) -> int:
        """A block, shortened to the remaining window."""
        return _within(self.section.time_s, recording, elapsed_s)

    def remaining_s(self, recording: TimedBlocks, elapsed_s: float) -> float:
        """The rest of the window."""
        return max(0.0, self.section.time_s - elapsed_s)


class BySteps(StoppingRule):
    """Stops after exactly ``measure.steps`` calls."""

    def durations(self, recording: TimedBlocks, elapsed_s: float) -> int:
        """A block, shortened to the remaining calls."""
        plan = recording.plan
        durations_missing = self.section.steps // plan.calls_per_duration - recording.durations
        return min(plan.durations_per_block, durations_missing)

    def remaining_s(self, recording: TimedBlocks, elapsed_s: float) -> float:
        """That of the remaining calls."""
        return elapsed_s * (self.section.steps / recording.calls - 1)


@dataclass(frozen=True)
class ByRounds(StoppingRule):
    """Stops after a fixed number of rounds.

    Those of ``measure.rounds_file`` have no time limit. Those of a baseline have one, since the
    step may have become a hundred times slower.
    """

    fixed_rounds: int

    def durations(self, recording: TimedBlocks, elapsed_s: float) -> int:
        """A block, shortened to the remaining rounds."""
        missing = self.fixed_rounds - recording.rounds
        section, limit_s = self.section, math.inf
        if section.rounds_file is None and section.by != "steps":
            limit_s = _PATIENCE * (section.time_s if section.by == "time" else section.max_time_s)
        return _within(limit_s, recording, elapsed_s, missing) if missing > 0 else 0

    def remaining_s(self, recording: TimedBlocks, elapsed_s: float) -> float:
        """That of the remaining rounds."""
        return elapsed_s * max(0.0, self.fixed_rounds / recording.rounds - 1)


class CheckSchedule:
    """Schedule of interval checks: after the minimum time and rounds; at ¾, ½, ¼ … of the maximum.

    Few, because stopping at the first narrow interval biases it, and because each check sorts all
    rounds. `confidence` is that of one check, corrected for their number.
    """

    def __init__(self, section: MeasureSection) -> None:
        most = section.max_rounds
        halves = (-(-most >> part) for part in range(_CHECKS - 2, 0, -1))
        self._checks = [*halves, -(-3 * most // 4)]
        self._next_check: float = section.required_rounds
        self._min_time_s = section.min_time_s
        self.confidence = 1 - (1 - section.confidence) / _CHECKS

    def due(self, rounds: int, elapsed_s: float) -> bool:
        """Whether the next check is due; advances the schedule."""
        if rounds < self._next_check or elapsed_s < self._min_time_s:
            return False
        self._next_check = next((check for check in self._checks if check > rounds), math.inf)
        return True


def make_rule(section: MeasureSection, fixed_rounds: int = 0) -> StoppingRule:
    """Stopping rule named by ``measure.by``, unless the number of rounds is fixed."""
    if fixed_rounds:
        return ByRounds(section, fixed_rounds)
    rules: dict[str, type[StoppingRule]] = {"ci": ByInterval, "time": ByTime, "steps": BySteps}
    return rules[section.by](section)


def _within(
    limit_s: float, recording: TimedBlocks, elapsed_s: float, rounds_left: float = math.inf
) -> int:
    """Durations of a block within the limits, by the rounds so far; at least one block is timed."""
    left_s = limit_s - elapsed_s
    rounds = min(recording.plan.rounds_per_block, rounds_left)
    if recording.rounds and left_s < math.inf:
        if left_s <= 0:
            return 0
        rounds = min(rounds, remaining_rounds(left_s, elapsed_s / recording.rounds))
    return int(rounds) * recording.plan.durations_per_round


# Rounds whose median is the time of a step: as many as the warm-up tests for a trend.
_RECENT = 50


@dataclass(frozen=True, slots=True)
class Progress:
    """View of a `recording` under its stopping `rule`, after `spent_s` seconds for it.

    It is one of several `variants` that take turns, each of which has as much time. Nothing is
    computed before it is asked for.
    """

    recording: TimedBlocks
    rule: StoppingRule
    spent_s: float
    variants: int = 1

    @property
    def elapsed_s(self) -> float:
        """Seconds since the timed calls began."""
        return self.spent_s * self.variants

    @property
    def step_s(self) -> float:
        """Seconds per call: the median of the last rounds."""
        return median(self.recording.rounds_s[-_RECENT:])

    @property
    def remaining_s(self) -> float | None:
        """Estimated seconds until the rule stops; None before its first check."""
        remaining_s = self.rule.remaining_s(self.recording, self.spent_s)
        return None if remaining_s is None else remaining_s * self.variants
