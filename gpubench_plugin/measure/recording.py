"""Timed blocks in bounded memory, and the samples that they become, with their flags."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Final

from gpubench_plugin.core.errors import MeasurementError
from gpubench_plugin.core.quality_flags import (
    CUT_SHORT,
    DEPENDENT,
    DRIFTING,
    OUTLIERS,
    SAMPLED,
    TIMER_OVERHEAD,
    UNCALIBRATED,
    UNSTEADY,
)
from gpubench_plugin.core.records import Samples, round_medians
from gpubench_plugin.measure.interval import Autocorrelation
from gpubench_plugin.measure.warmup import WarmUp, is_trending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.config.sections import MeasureSection
    from gpubench_plugin.measure.clocks.base import Block
    from gpubench_plugin.measure.plan import Plan


class TimedBlocks:
    """Durations, blocks and evidence of timed blocks, at 8 bytes per number.

    Above ``measure.keep_durations`` only a sample of them stays, and the medians of the rounds,
    unless a round is one duration. `half_width` is that of the last check of the confidence
    interval, of `checked_rounds`, infinite before the first and where there is none; `dependent`
    tells whether that check found too few independent rounds to stop, `lacks_interval` whether too
    few for the interval that is reported, and `is_unreliable` whether the rounds are too few to
    detect dependence and too widely spread to ignore it.
    """

    def __init__(self, plan: Plan, section: MeasureSection) -> None:
        self.plan = plan
        self.section = section
        self._sample: _Sample | None = None
        self.durations_s = array("d")
        self.rounds_s = array("d")
        self.block_s = array("d")
        self.block_calls = array("q")
        self.evidence: dict[str, float] = {}
        self.half_width = math.inf
        self.checked_rounds = 0
        self.dependent = False
        self.lacks_interval = False
        self.is_unreliable = False

    @property
    def rounds(self) -> int:
        """Number of complete rounds recorded."""
        return len(self.rounds_s)

    @property
    def calls(self) -> int:
        """Number of calls recorded."""
        return self.durations * self.plan.calls_per_duration

    @property
    def durations(self) -> int:
        """Durations recorded, stored or not."""
        return len(self.durations_s) if self._sample is None else self._sample.count

    @property
    def sample_s(self) -> Sequence[float]:
        """Sample of all durations, once there are too many to store; empty before."""
        return () if self._sample is None else self._sample.values_s

    def add(self, block: Block) -> None:
        """Add a timed block.

        Raises:
            MeasurementError: a duration is not finite or not positive.
        """
        check_durations(block.durations_s)
        self.rounds_s.extend(round_medians(block.durations_s, self.plan.durations_per_round))
        self.block_s.append(block.length_s)
        self.block_calls.append(block.calls)
        for name, amount in block.evidence.items():
            self.evidence[name] = self.evidence.get(name, 0.0) + amount
        if self._sample is not None:
            self._sample.add(block.durations_s)
            return
        self.durations_s.extend(block.durations_s)
        # Rounds of one duration last a millisecond or more: they are few, and the median's.
        most = self.section.keep_durations
        if self.plan.durations_per_round > 1 and len(self.durations_s) > most:
            self._sample = _Sample(self.durations_s, most)
            self.durations_s = array("d")

    def update_interval(self, confidence: float) -> None:
        """Update `half_width` and what else the check of an interval finds."""
        autocorrelation = Autocorrelation(self.rounds_s)
        interval = autocorrelation.interval(confidence)
        self.checked_rounds = self.rounds
        self.half_width = math.inf if interval is None else interval.half_width
        self.dependent = autocorrelation.is_strong
        self.lacks_interval = autocorrelation.interval(self.section.confidence) is None
        self.is_unreliable = autocorrelation.may_be_undetected(self.section.ci_half_width)


class _Sample:
    """Uniform sample of so many of the durations that are added one after the other.

    J. S. Vitter: Random Sampling with a Reservoir, ACM Transactions on Mathematical Software 11
    (1985), algorithm R. Of n values a quantile at p is off by ranks with a standard deviation of
    the square root of p(1 - p)/n: one in two thousand for the median of a million, see
    ``docs/evidence/quantiles.md``.
    """

    def __init__(self, durations_s: Sequence[float], size: int) -> None:
        import numpy as np

        self._random = np.random.default_rng(0)  # the same places in every run
        self._kept = np.array(durations_s[:size])
        self._least, self._most = self._kept.min(), self._kept.max()
        self.count = size
        self.add(durations_s[size:])

    def add(self, durations_s: Sequence[float]) -> None:
        """Add `durations_s`, each of which replaces one that is kept, or none."""
        import numpy as np

        added = np.asarray(durations_s)
        counts = self.count + 1 + np.arange(len(added))
        places = (self._random.random(len(added)) * counts).astype(np.int64)
        is_kept = places < len(self._kept)
        self._kept[places[is_kept]] = added[is_kept]  # of equal places the last stays
        self._least, self._most = min(self._least, added.min()), max(self._most, added.max())
        self.count += len(added)

    @property
    def values_s(self) -> Sequence[float]:
        """The sample in order, with the shortest and the longest of all durations."""
        return [float(self._least), *sorted(self._kept.tolist()), float(self._most)]


def check_durations(durations_s: Sequence[float]) -> None:
    """Refuse durations that are not finite or not positive, and none at all.

    Raises:
        MeasurementError: naming the first of them.
    """
    if not durations_s:
        raise MeasurementError("nothing was timed: there is no duration")
    # A sum is finite only if every part is: no step of Python per part.
    if min(durations_s) > 0 and math.isfinite(sum(durations_s)):
        return
    impossible_s = next(seconds for seconds in durations_s if not 0 < seconds < math.inf)
    raise MeasurementError(
        f"a timed call lasted {impossible_s} s: the clock did not advance or failed, so no "
        "number is reported"
    )


# Quantile at the slow end of the bulk: one duration in twenty may be an outlier without moving it.
_BULK: Final = 0.9

# Widths of the bulk from the median to the limit: the bulk of normal data ends 1.28 standard
# deviations above the median, which puts the limit at 5.1. Of measurements with normal noise 1.1%
# at most are flagged, at 12 durations (docs/evidence/outliers.md).
_REACH: Final = 4.0

# Minimum width of the bulk as a share of the median: four times that is 5%, so that a quiet
# machine has no outliers among differences too small to act on.
_LEAST_BULK: Final = 0.0128

# Share of outliers that is flagged: fewer hardly move the mean.
_SHARE: Final = 0.005


def timed_samples(recording: TimedBlocks, warmup: WarmUp, *, is_cut_short: bool) -> Samples:
    """Samples of a `recording`, which lacks some of the rounds it should have if `is_cut_short`.

    A trend beyond the tolerance between the warm-up and the last rounds is flagged.
    """
    plan, sample_s, clock = recording.plan, recording.sample_s, warmup.clock
    flags = {
        UNSTEADY: warmup.ended_trending,
        DRIFTING: is_trending(
            [*warmup.tail_s, *recording.rounds_s], recording.section.steady_tolerance
        ),
        CUT_SHORT: is_cut_short,
        DEPENDENT: Autocorrelation(recording.rounds_s).hides_interval(recording.section.confidence),
        OUTLIERS: has_outliers(sample_s or recording.durations_s),
        UNCALIBRATED: warmup.calibration_calls < clock.calibration_calls,
        # At twice the length, so that groups that sped up a little are not flagged.
        TIMER_OVERHEAD: plan.calls_per_duration
        < min(clock.queued_calls, clock.group_size(2 * median(recording.rounds_s))),
    }
    samples = Samples(
        timer=clock.timer,
        durations_s=tuple(recording.durations_s),
        calls_per_duration=plan.calls_per_duration,
        durations_per_round=plan.durations_per_round,
        block_s=tuple(recording.block_s),
        block_calls=tuple(recording.block_calls),
        first_step_s=warmup.first_call_s,
        warmup_s=tuple(warmup.durations_s),
        warmup_calls=warmup.calls + warmup.calibration_calls,
    ).flagged(
        *(flag for flag, is_raised in flags.items() if is_raised), *clock.flags(recording.evidence)
    )
    if not sample_s:
        return samples
    # Too many durations to store: the medians of their rounds stand for them.
    return replace(
        samples,
        durations_s=tuple(recording.rounds_s),
        calls_per_duration=plan.calls_per_round,
        durations_per_round=1,
        reduced_from=replace(samples.timing, durations=recording.durations),
        sample_s=tuple(sample_s),
    ).flagged(SAMPLED)


def has_outliers(durations_s: Sequence[float]) -> bool:
    """Whether more than 0.5% of the durations are outliers; they are flagged, never dropped.

    An outlier is slower than the median by more than four times what the 90th percentile is.
    """
    import numpy as np

    durations = np.asarray(durations_s)
    with np.errstate(invalid="ignore"):  # the recording refuses infinite durations
        median_s, end = np.quantile(durations, (0.5, _BULK))
    bulk = max(end - median_s, _LEAST_BULK * median_s)
    limit = median_s + _REACH * bulk
    return bool(np.count_nonzero(durations > limit) > _SHARE * len(durations))
