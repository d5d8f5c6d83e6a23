"""Speed-up of a variant over another one, from neighbouring turns.

Each turn of one is divided by the other's in the same pass: what slows the machine down for longer
than a pass cancels. The speed-up is the median of these ratios, whose interval is that of
:mod:`gpubench_plugin.measure.interval`: from order statistics, without a distribution, and widened
where the ratios depend on their neighbours. What is recorded is wider still, by what the placement
of the variants in memory may cause, which no number of turns averages out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from gpubench_plugin.core.records import (
    Samples,
    confidence_bounds_of,
    speed_up_metric,
    variant_rounds,
)
from gpubench_plugin.measure.interval import Interval, median_interval
from gpubench_plugin.measure.metrics.throughput import median_step_s, rounds_s

_STEP_TIME: Final = "variant_{}_step_time_s"
_CONTRADICTION: Final = 1.1
"""By how much the ratio of the medians may lie outside the interval of the turns. They differ where
slow calls dominate the turns, as the flag ``stalls`` tells of a throughput 10% from the median."""
_PLACEMENT: Final = 0.02
"""Part of a speed-up that placement in memory may cause. Of 28 comparisons without doubt of a
product of 128 x 128 matrices with itself, the intervals of the turns of 18 held 1 and those of 10
were up to 0.016 away: where the tensors of a variant lie is the same in all its turns. Of 60 others
the intervals of the turns of 44 held 1, and the widened ones of all (2 cores of an AMD EPYC)."""


@dataclass(frozen=True, kw_only=True)
class SpeedUp:
    """How many times as fast, from pairs of turns; too few of them have no `interval`.

    `by_medians` is the ratio of the medians of all rounds.
    """

    value: float
    interval: Interval | None
    by_medians: float

    @property
    def is_conclusive(self) -> bool:
        """Whether the medians do not contradict the turns; else neither ratio is to be trusted."""
        ends = self.interval
        low, high = (self.value, self.value) if ends is None else (ends.low, ends.high)
        return low / _CONTRADICTION <= self.by_medians <= high * _CONTRADICTION


def paired_speed_up(reference: Samples, other: Samples, confidence: float) -> SpeedUp:
    """Speed-up of `other` over `reference`, which took turns in one measurement.

    The time of a turn is its length over its calls; over several ranks both are the slowest rank's.
    A 95% interval covered a true 1.1x in 95 to 99% of 200 measurements on each of nine machines:
    with independent, lasting and skewed noise, drift, random walks and modes of 1.2x, for calls of
    2 and 20 ms; ``tests/unit/measure/test_turns.py`` repeats five of them.
    """
    ratios = [
        reference_s / other_s
        for reference_s, other_s in zip(turns_s(reference), turns_s(other), strict=True)
    ]
    interval = median_interval(ratios, confidence)
    value = median(ratios) if interval is None else interval.median
    by_medians = median_step_s(reference) / median_step_s(other)
    return SpeedUp(value=value, interval=interval, by_medians=by_medians)


def speed_ups(variants: Mapping[str, Samples], confidence: float) -> dict[str, SpeedUp]:
    """Speed-up of each of the `variants` over the first, its interval widened for placement."""
    (_, reference), *others = variants.items()
    return {
        name: _widened(paired_speed_up(reference, samples, confidence)) for name, samples in others
    }


def _widened(speed_up: SpeedUp) -> SpeedUp:
    if (ends := speed_up.interval) is None:
        return speed_up
    ends = replace(ends, low=ends.low * (1 - _PLACEMENT), high=ends.high * (1 + _PLACEMENT))
    return replace(speed_up, interval=ends)


def turns_s(samples: Samples) -> list[float]:
    """Mean seconds per call of each turn."""
    blocks = zip(samples.block_s, samples.block_calls, strict=True)
    return [length_s / calls for length_s, calls in blocks]


def variant_facts(
    variants: Mapping[str, Samples], faster: Mapping[str, SpeedUp], confidence: float
) -> dict[str, float]:
    """Facts of `variants`, the first of which is the reference, named as the metrics they become.

    ``speed_up`` is that of the second of two; of more each has ``speed_up_<name>``. One without a
    conclusion is none, so that nothing is judged by it.
    """
    facts: dict[str, float] = {}
    for name, samples in variants.items():
        step_time = median_interval(rounds_s(samples), confidence)
        facts |= _with_bounds(_STEP_TIME.format(name), median_step_s(samples), step_time)
        facts[variant_rounds(name)] = float(samples.rounds)
    for name, speed_up in faster.items():
        if speed_up.is_conclusive:
            metric = speed_up_metric(name, len(variants))
            facts |= _with_bounds(metric, speed_up.value, speed_up.interval)
    return facts


def variant_metrics(variants: Sequence[str]) -> frozenset[str]:
    """Names of the metrics of `variants`, without those of the bounds of intervals."""
    own = {m for name in variants for m in (_STEP_TIME.format(name), variant_rounds(name))}
    return frozenset(own | {speed_up_metric(name, len(variants)) for name in variants[1:]})


def _with_bounds(name: str, value: float, interval: Interval | None) -> dict[str, float]:
    facts = {name: float(value)}
    if interval is not None:
        low, high = confidence_bounds_of(name)
        facts |= {low: float(interval.low), high: float(interval.high)}
    return facts
