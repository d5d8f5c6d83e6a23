"""How a benchmark scales: its throughput beside that of the same on fewer ranks, in one run.

The metrics belong to two measurements, so they are added where both are known and not where one is
made. They are missing where either side is in doubt: what is divided by a wrong number is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

from gpubench_plugin.flags import doubts
from gpubench_plugin.records import Measurement, Metric, Work, ends_of

SPEED_UP: Final = "scaling_speed_up"
EFFICIENCY: Final = "scaling_efficiency"
SCALING: Final = (SPEED_UP, EFFICIENCY)
_ADDED: Final = frozenset({*SCALING, *ends_of(SPEED_UP), *ends_of(EFFICIENCY)})

THROUGHPUT: Final = ("samples_per_s", "tokens_per_s", "bytes_per_s")
"""Work that is summed over the ranks: the more ranks, the more of it is expected."""

Kind = Literal["strong", "weak", ""]

_NEAR: Final = 0.01
"""How far an amount may be from the one expected: ranks may divide it unevenly."""


class Families:
    """Measurements as they come, each beside those that differ in the number of ranks alone."""

    def __init__(self) -> None:
        self._members: dict[object, dict[str, Measurement]] = {}

    def add(self, measurement: Measurement) -> Mapping[str, Measurement]:
        """All of the family of `measurement`, by id, with what is known of their scaling now."""
        members = self._members.setdefault(_family(measurement), {})
        members[measurement.id] = measurement
        members.update({one.id: one for one in scaled(list(members.values()))})
        return members


def families(measurements: Iterable[Measurement]) -> list[list[Measurement]]:
    """Those measured on two numbers of ranks or more, of each benchmark the smallest first."""
    by_family: dict[object, list[Measurement]] = {}
    for measurement in measurements:
        if measurement.outcome == "measured":
            by_family.setdefault(_family(measurement), []).append(measurement)
    return [
        sorted(family, key=lambda measurement: measurement.world_size)
        for family in by_family.values()
        if len({measurement.world_size for measurement in family}) > 1
    ]


def scaled(family: Sequence[Measurement]) -> list[Measurement]:
    """The measurements of one family with speed-up and efficiency against the smallest.

    What was added to them before is left out: a smaller number of ranks may have come meanwhile.
    """
    bare = [_without(measurement) for measurement in family]
    members = families(bare)
    rate = _rate(members[0]) if members else None
    if rate is None:
        return bare
    first = members[0][0]
    return [
        replace(one, metrics={**one.metrics, **_beside(first, one, rate)})
        if one.outcome == "measured"
        else one
        for one in bare
    ]


def kind_of(family: Sequence[Measurement]) -> Kind:
    """Whether all ranks together do the same work on any number of them, or each has its own.

    By the work that was recorded, whatever a configuration calls it; nothing where it is neither.
    """
    rate = _rate(family)
    if rate is None:
        return ""
    amounts = [amount for one in family if (amount := _amount(one, rate)) is not None]
    if len(amounts) < len(family):
        return ""
    ranks = [measurement.world_size / family[0].world_size for measurement in family]
    if all(_near(amount, amounts[0]) for amount in amounts):
        return "strong"
    if all(_near(a, amounts[0] * more) for a, more in zip(amounts, ranks, strict=True)):
        return "weak"
    return ""


def _family(measurement: Measurement) -> object:
    others = {name: v for name, v in measurement.params.items() if name != "world_size"}
    return (measurement.id.partition("[")[0], *sorted(others.items()))


def _without(measurement: Measurement) -> Measurement:
    if _ADDED.isdisjoint(measurement.metrics):
        return measurement
    metrics = {name: m for name, m in measurement.metrics.items() if name not in _ADDED}
    return replace(measurement, metrics=metrics)


def _rate(family: Sequence[Measurement]) -> str | None:
    return next((name for name in THROUGHPUT if all(name in m.metrics for m in family)), None)


def _amount(measurement: Measurement, rate: str) -> float | None:
    """The work of one call on all ranks."""
    return (measurement.work or Work()).known.get(rate.removesuffix("_per_s"))


def _near(amount: float, expected: float) -> bool:
    return abs(amount / expected - 1) <= _NEAR


def _beside(first: Measurement, other: Measurement, rate: str) -> dict[str, Metric]:
    """Speed-up and efficiency of `other` over `first`, with their intervals where both have one.

    The errors of two independent rates add up in squares, as logarithms.
    """
    if doubts(first.flags) or doubts(other.flags):
        return {}
    speed_up = other.metrics[rate].value / first.metrics[rate].value
    reach = None if first is other else _joint(_reach(first, rate), _reach(other, rate))
    metrics: dict[str, Metric] = {}
    ranks = other.world_size / first.world_size
    for name, unit, value in (
        (SPEED_UP, "1", speed_up),
        (EFFICIENCY, "fraction", speed_up / ranks),
    ):
        metrics[name] = Metric(name=name, value=value, unit=unit, better="higher")
        if reach is not None:
            for end, factor in zip(ends_of(name), (-reach, reach), strict=True):
                metrics[end] = Metric(name=end, value=value * math.exp(factor), unit=unit)
    return metrics


def _joint(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else math.hypot(one, other)


def _reach(measurement: Measurement, rate: str) -> float | None:
    """Half the interval of the rate's logarithm."""
    low, high = map(measurement.metrics.get, ends_of(rate))
    if low is None or high is None or min(low.value, high.value) <= 0:
        return None
    return math.log(high.value / low.value) / 2
