"""Progress of a measurement, as seen between two timed blocks."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gpubench_plugin.measure.recording import TimedBlocks
    from gpubench_plugin.measure.stopping import StoppingRule

_RECENT: Final = 50
"""Rounds whose median is the time of a step: as many as the warm-up tests for a trend."""


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
    def rounds(self) -> int:
        """Rounds so far."""
        return self.recording.rounds

    @property
    def calls(self) -> int:
        """Timed calls so far."""
        return self.recording.calls

    @property
    def half_width(self) -> float:
        """Relative half-width of the median's interval at the last check, infinite before it."""
        return self.recording.half_width

    @property
    def step_s(self) -> float:
        """Seconds per call: the median of the last rounds."""
        return median(self.recording.rounds_s[-_RECENT:])

    @property
    def remaining_s(self) -> float | None:
        """Estimated seconds until the rule stops; None before its first check."""
        remaining_s = self.rule.remaining_s(self.recording, self.spent_s)
        return None if remaining_s is None else remaining_s * self.variants
