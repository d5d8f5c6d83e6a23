"""Memory-bounded recording of timed blocks."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING

from gpubench_plugin.core.errors import MeasurementError
from gpubench_plugin.core.records import Sketch, round_medians
from gpubench_plugin.measure.interval import Autocorrelation
from gpubench_plugin.measure.sketch import Sketcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.config.sections import MeasureSection
    from gpubench_plugin.measure.clocks.base import Block
    from gpubench_plugin.measure.plan import Plan


# Durations sketched at a time: large enough to be rare, and a few milliseconds between two blocks.
_BATCH = 16_384


class Recording:
    """Durations, blocks and evidence of timed blocks, at 8 bytes per number.

    Above ``measure.keep_durations`` they go into a sketch, and only the medians of the rounds stay,
    unless a round is one duration. `half_width` is that of the last check of the confidence
    interval, of `checked_rounds`, infinite before the first and with too few rounds; `dependent`
    tells whether that check found too few independent rounds, `is_unreliable` whether the rounds
    are too few to detect dependence and too widely spread to ignore it. `contended` tells whether
    other processes delayed the blocks so far.
    """

    def __init__(self, plan: Plan, section: MeasureSection) -> None:
        self.plan = plan
        self._max_stored = section.keep_durations if plan.durations_per_round > 1 else math.inf
        self._target_half_width = section.ci_half_width
        self._rank_error = section.sketch_rank_error
        self._sketcher: Sketcher | None = None
        self.durations_s = array("d")
        self.rounds_s = array("d")
        self.block_s = array("d")
        self.block_calls = array("q")
        self.evidence: dict[str, float] = {}
        self.half_width = math.inf
        self.checked_rounds = 0
        self.dependent = False
        self.is_unreliable = False
        self.contended = False

    @property
    def rounds(self) -> int:
        """Complete rounds recorded."""
        return len(self.rounds_s)

    @property
    def calls(self) -> int:
        """Calls recorded."""
        return self.durations * self.plan.calls_per_duration

    @property
    def durations(self) -> int:
        """Durations recorded, stored or sketched."""
        return len(self.durations_s) + (self._sketcher.count if self._sketcher else 0)

    @property
    def sketch(self) -> Sketch | None:
        """Sketch of all durations, once there are too many to store."""
        if self._sketcher is None:
            return None
        self._sketch()
        return self._sketcher.sketch

    def add(self, block: Block) -> None:
        """Add a timed block.

        Raises:
            MeasurementError: a duration is not finite or not positive.
        """
        _check(block.durations_s)
        self.durations_s.extend(block.durations_s)
        self.rounds_s.extend(round_medians(block.durations_s, self.plan.durations_per_round))
        self.block_s.append(block.length_s)
        self.block_calls.append(block.calls)
        for name, amount in block.evidence.items():
            self.evidence[name] = self.evidence.get(name, 0.0) + amount
        if self._sketcher is None and len(self.durations_s) > self._max_stored:
            self._sketcher = Sketcher(self._rank_error)
            self._sketch()
        elif self._sketcher is not None and len(self.durations_s) >= _BATCH:
            self._sketch()

    def update_interval(self, confidence: float) -> None:
        """Update `half_width`, `dependent` and `is_unreliable`."""
        autocorrelation = Autocorrelation(self.rounds_s)
        interval = autocorrelation.interval(confidence)
        self.checked_rounds = self.rounds
        self.half_width = math.inf if interval is None else interval.half_width
        self.dependent = autocorrelation.is_strong
        self.is_unreliable = autocorrelation.may_be_undetected(self._target_half_width)

    def _sketch(self) -> None:
        """Move the stored durations into the sketch."""
        if self._sketcher is not None and self.durations_s:
            self._sketcher.update(self.durations_s)
            self.durations_s = array("d")


def impossible_index(times_s: Sequence[float]) -> int | None:
    """Index of the first time that is not finite or not positive, if any."""
    # A sum is finite only if every part is: no step of Python per part.
    if min(times_s) > 0 and math.isfinite(sum(times_s)):
        return None
    return next(at for at, time_s in enumerate(times_s) if not 0 < time_s < math.inf)


def _check(durations_s: Sequence[float]) -> None:
    """Refuse impossible durations."""
    if (at := impossible_index(durations_s)) is not None:
        raise MeasurementError(
            f"a timed call lasted {durations_s[at]} s: the clock did not advance or failed, so no "
            "number is reported"
        )
