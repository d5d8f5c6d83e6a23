"""Speed-up of a variant over another one, from neighbouring turns.

Each turn of one is divided by the other's in the same pass: what slows the machine down for longer
than a pass cancels. The speed-up is the median of these ratios, whose interval is that of
:mod:`gpubench_plugin.measure.interval`: from order statistics, without a distribution, and widened
where the ratios depend on their neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from gpubench_plugin.measure.interval import Interval, median_interval

if TYPE_CHECKING:
    from gpubench_plugin.records import Samples


@dataclass(frozen=True, kw_only=True)
class SpeedUp:
    """How many times as fast, from `pairs` of turns; too few of them have no `interval`."""

    value: float
    interval: Interval | None
    pairs: int


def paired_speed_up(reference: Samples, other: Samples, confidence: float) -> SpeedUp:
    """Speed-up of `other` over `reference`, which took turns in one measurement.

    The time of a turn is its length over its calls; over several ranks both are the slowest rank's.
    """
    ratios = [
        reference_s / other_s
        for reference_s, other_s in zip(_turns_s(reference), _turns_s(other), strict=True)
    ]
    interval = median_interval(ratios, confidence)
    value = median(ratios) if interval is None else interval.median
    return SpeedUp(value=value, interval=interval, pairs=len(ratios))


def _turns_s(samples: Samples) -> list[float]:
    """Mean seconds per call of each turn."""
    blocks = zip(samples.block_s, samples.block_calls, strict=True)
    return [length_s / calls for length_s, calls in blocks]
