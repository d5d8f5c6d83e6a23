"""Samples of a timed step, with the flags that its rounds raise."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Final

from gpubench_plugin.core.quality_flags import (
    CONTENDED,
    DEPENDENT,
    DRIFTING,
    NOT_CONVERGED,
    OUTLIERS,
    SAMPLED,
    TIMER_OVERHEAD,
    UNCALIBRATED,
    UNSTEADY,
)
from gpubench_plugin.core.records import Samples
from gpubench_plugin.measure.trend import is_trending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.measure.clocks.base import Clock
    from gpubench_plugin.measure.recording import TimedBlocks
    from gpubench_plugin.measure.warmup import Preparation

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


def timed_samples(
    recording: TimedBlocks,
    preparation: Preparation,
    *,
    clock: Clock,
    tolerance: float,
    converged: bool,
) -> Samples:
    """Samples of a `recording` that ended at its goal, `converged`, or at a limit.

    A trend beyond `tolerance` between the warm-up and the last rounds is flagged.
    """
    warmup, plan = preparation.warmup, recording.plan
    sample_s = recording.sample_s
    flags = {
        UNSTEADY: not preparation.steady,
        DRIFTING: is_trending([*warmup.tail_s, *recording.rounds_s], tolerance),
        NOT_CONVERGED: not converged,
        DEPENDENT: recording.dependent,
        CONTENDED: recording.contended,
        OUTLIERS: has_outliers(sample_s or recording.durations_s),
        UNCALIBRATED: preparation.calibration_calls < clock.calibration_calls,
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
        first_step_s=preparation.first_call_s,
        warmup_s=tuple(warmup.durations_s),
        warmup_calls=warmup.calls + preparation.calibration_calls,
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

    sorted_durations = sorted(durations_s)
    median_s = median(sorted_durations)
    with np.errstate(invalid="ignore"):  # the recording refuses infinite durations
        end = float(np.quantile(sorted_durations, _BULK))
    bulk = max(end - median_s, _LEAST_BULK * median_s)
    limit = median_s + _REACH * bulk
    return sum(duration > limit for duration in sorted_durations) > _SHARE * len(sorted_durations)
