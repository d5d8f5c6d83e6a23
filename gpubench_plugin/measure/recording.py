"""Memory-bounded recording of timed blocks."""

from __future__ import annotations

import math
from array import array
from statistics import median
from typing import TYPE_CHECKING

from gpubench_plugin.errors import MeasurementError
from gpubench_plugin.measure.interval import Autocorrelation
from gpubench_plugin.measure.sketch import Sketcher
from gpubench_plugin.records import Sketch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.config import MeasureSection
    from gpubench_plugin.measure.clocks import Block
    from gpubench_plugin.measure.plan import Plan


# Durations are sketched so many at a time: some milliseconds between two blocks, now and then.
_BATCH = 16_384


class Recording:
    """Durations, blocks and evidence of timed blocks, at 8 bytes per number.

    More durations than `section` lets it keep go into a sketch, and only the medians of their
    rounds stay. A round of one duration is its own median: then all are kept. `half_width` is that
    of the last look at the confidence interval, infinite before the first and while the rounds are
    too few for one; `dependent` says whether that look found few rounds that stand for themselves,
    `hidden` whether the rounds are too few to tell, and spread too widely to do without.
    `contended` is whether other processes held up the blocks so far.
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
        self.dependent = False
        self.is_unreliable = False
        self.contended = False

    @property
    def rounds(self) -> int:
        """Complete rounds recorded."""
        return len(self.rounds_s)

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
            MeasurementError: a duration that is not finite, or not above zero.
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
        """Update `half_width`, `dependent` and `hidden`."""
        dependence = Autocorrelation(self.rounds_s)
        interval = dependence.interval(confidence)
        self.half_width = math.inf if interval is None else interval.half_width
        self.dependent = dependence.is_strong
        self.is_unreliable = dependence.may_hide(self._target_half_width)

    def _sketch(self) -> None:
        """Move the stored durations into the sketch."""
        if self._sketcher is not None and self.durations_s:
            self._sketcher.update(self.durations_s)
            self.durations_s = array("d")


def round_medians(durations_s: Sequence[float], width: int) -> Sequence[float]:
    """Median of each complete round of `width` durations, in seconds per call."""
    if width == 1:
        return durations_s
    used_length = len(durations_s) - len(durations_s) % width
    return [median(durations_s[at : at + width]) for at in range(0, used_length, width)]


def _check(durations_s: Sequence[float]) -> None:
    """Refuse impossible durations; a non-finite one makes the sum non-finite."""
    if math.isfinite(sum(durations_s)) and min(durations_s) > 0:
        return
    bad_duration = next(d for d in durations_s if not (math.isfinite(d) and d > 0))
    raise MeasurementError(
        f"a timed call lasted {bad_duration} s: the clock did not advance or failed, so no "
        "number is reported"
    )
