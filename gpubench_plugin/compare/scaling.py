"""Scaling: a benchmark's throughput relative to fewer ranks in the same run.

The metrics depend on two measurements, so they are added once both are known. They are missing
where either has a doubtful flag.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

from gpubench_plugin.core.format import grouped
from gpubench_plugin.core.quality_flags import doubtful_flags
from gpubench_plugin.core.records import Measurement, Metric, Work, confidence_bounds_of

SPEED_UP: Final = "scaling_speed_up"
EFFICIENCY: Final = "scaling_efficiency"
SCALING: Final = (SPEED_UP, EFFICIENCY)
SCALING_METRICS: Final = frozenset(
    {*SCALING, *confidence_bounds_of(SPEED_UP), *confidence_bounds_of(EFFICIENCY)}
)
"""All metrics that :class:`Families` adds."""

THROUGHPUT: Final = ("samples_per_s", "tokens_per_s", "bytes_per_s")
"""Rates of work that is summed over the ranks."""

Kind = Literal["strong", "weak", ""]

_MOST_EFFICIENT: Final = 2.0
"""More than ranks explain, even if the caches of all of them hold what those of few do not."""

# Relative difference of amounts of work that count as equal: ranks may divide a batch unevenly.
_TOLERANCE: Final = 0.01


class Families:
    """Groups arriving measurements that differ only in the number of ranks."""

    def __init__(self) -> None:
        self._members: dict[object, dict[str, Measurement]] = {}

    def add(self, measurement: Measurement) -> Mapping[str, Measurement]:
        """All members of the family of `measurement`, by id, with updated scaling metrics."""
        members = self._members.setdefault(family_of(measurement), {})
        members[measurement.id] = measurement
        for m in members.values():  # a smaller number of ranks may have been measured since
            unscaled = {name: v for name, v in m.metrics.items() if name not in SCALING_METRICS}
            members[m.id] = replace(m, metrics=unscaled)
        for family in families(members.values()):
            if rate := rate_of(family):
                for m in family:
                    metrics = {**m.metrics, **_relative_to(family[0], m, rate)}
                    members[m.id] = replace(m, metrics=metrics)
        return members


def families(measurements: Iterable[Measurement]) -> list[list[Measurement]]:
    """Families measured on at least two numbers of ranks, smallest first."""
    by_family = grouped((family_of(m), m) for m in measurements if m.outcome == "measured")
    return [
        sorted(family, key=lambda measurement: measurement.world_size)
        for family in by_family.values()
        if len({measurement.world_size for measurement in family}) > 1
    ]


def kind_of(family: Sequence[Measurement]) -> Kind:
    """Strong scaling if all ranks share a fixed amount of work, weak if each has its own.

    By the recorded work, not the configuration; empty where it is neither.
    """
    rate = rate_of(family)
    if rate is None:
        return ""
    work = rate.removesuffix("_per_s")  # of one call on all ranks
    amounts = [a for m in family if (a := (m.work or Work()).known_amounts.get(work)) is not None]
    if len(amounts) < len(family):
        return ""
    ranks = [measurement.world_size / family[0].world_size for measurement in family]
    if all(_near(amount, amounts[0]) for amount in amounts):
        return "strong"
    if all(_near(a, amounts[0] * world_size) for a, world_size in zip(amounts, ranks, strict=True)):
        return "weak"
    return ""


def family_of(measurement: Measurement, parameter: str = "world_size") -> object:
    """What benchmarks have in common that differ in the `parameter` alone."""
    others = {name: v for name, v in measurement.params.items() if name != parameter}
    return (measurement.id.partition("[")[0], *sorted(others.items()))


def rate_of(family: Sequence[Measurement]) -> str | None:
    """The rate that all members have, if there is one."""
    return next((name for name in THROUGHPUT if all(name in m.metrics for m in family)), None)


def _near(amount: float, expected: float) -> bool:
    return abs(amount / expected - 1) <= _TOLERANCE


def _relative_to(smallest: Measurement, other: Measurement, rate: str) -> dict[str, Metric]:
    """Speed-up and efficiency of `other` over `smallest`, with intervals where both have one.

    The errors of two independent rates add up in squares, as logarithms.
    """
    if doubtful_flags(smallest.flags) or doubtful_flags(other.flags):
        return {}
    speed_up = other.metrics[rate].value / smallest.metrics[rate].value
    half_widths = _half_width(smallest, rate), _half_width(other, rate)
    half_width = math.hypot(*filter(None, half_widths))
    ends = () if smallest is other or None in half_widths else (-half_width, half_width)
    metrics: dict[str, Metric] = {}
    efficiency = speed_up / (other.world_size / smallest.world_size)
    if efficiency > _MOST_EFFICIENT:
        return {}
    for name, unit, value in ((SPEED_UP, "1", speed_up), (EFFICIENCY, "fraction", efficiency)):
        metrics[name] = Metric(name=name, value=value, unit=unit, better="higher")
        for bound, end in zip(confidence_bounds_of(name), ends, strict=False):
            metrics[bound] = Metric(name=bound, value=value * math.exp(end), unit=unit)
    return metrics


def _half_width(measurement: Measurement, rate: str) -> float | None:
    """Half-width of the interval of the rate's logarithm."""
    low, high = map(measurement.metrics.get, confidence_bounds_of(rate))
    if low is None or high is None or min(low.value, high.value) <= 0:
        return None
    return math.log(high.value / low.value) / 2
