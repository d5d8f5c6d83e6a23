"""Series: the values of one metric of one benchmark on both sides, input of every judge.

Also its samples in a history, and the wording of effects in a verdict's reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from gpubench_plugin.config.limits import Limit
from gpubench_plugin.core.format import change_percentage, counted, ratio
from gpubench_plugin.core.records import Better

Part = Literal["floor", "median", "rate"]


@dataclass(frozen=True, kw_only=True)
class LaunchValues:
    """One value per launch (fresh process) on each side, in the metric's unit.

    `part` is the role in the benchmark's step time, whose parts share one verdict; None for a
    series with a verdict of its own. An `is_lenient` series is too noisy to exclude a regression:
    it is unchanged unless it is likely worse. `remark` ends the reason.

    For pairs both sides are in pair order; for a history `base` holds one value per earlier run,
    oldest first, of which the first `pinned` are the level (None: all), and `head` this run's.

    `doubt` names the doubts that touch the values, ``contended (head)``. Unless the series
    `is_trusted`, it decides nothing then, and must be clear of the limit with its intervals.

    `base_launches` and `head_launches` hold the values of each run's launches, whose median is the
    run's value; empty where every run is one launch, or launches are unknown.
    """

    id: str
    metric: str
    unit: str
    better: Better
    limit: Limit
    base: tuple[float, ...]
    head: tuple[float, ...]
    pinned: int | None = None
    part: Part | None = None
    is_lenient: bool = False
    remark: str = ""
    doubt: str = ""
    is_trusted: bool = False
    base_interval: tuple[float, float] | None = None
    head_interval: tuple[float, float] | None = None
    base_launches: tuple[tuple[float, ...], ...] = ()
    head_launches: tuple[tuple[float, ...], ...] = ()

    @property
    def is_amount(self) -> bool:
        """Whether the values are counts or bytes, of which there may be none."""
        return self.unit in {"count", "bytes"}

    @property
    def fewest_launches(self) -> int:
        """The smallest number of launches of a head run."""
        return min((max(1, len(launches)) for launches in self.head_launches), default=1)

    @property
    def level(self) -> tuple[float, ...]:
        """Values of `base` that form the level: the pinned ones, else the oldest."""
        return self.base if self.pinned is None else self.base[: max(self.pinned, 1)]

    @cached_property
    def samples(self) -> HistorySamples:
        """The values of `base` as samples of a history."""
        launches = self.base_launches or tuple((value,) for value in self.base)
        usable = [number for number, value in enumerate(self.base) if has_logarithm(value)]
        level = [number for number in usable if number < len(self.level)]
        return HistorySamples(
            level=tuple(self.base[number] for number in level),
            later=tuple(self.base[number] for number in usable[len(level) :]),
            pinned=self.pinned != 0,
            launches=tuple(tuple(filter(has_logarithm, launches[number])) for number in usable),
        )


def effect_text(series: LaunchValues, effect: float) -> str:
    """Describe an effect: ``4.1% slower``, ``12% higher``, ``no change``; in doubt by one digit."""
    size = change_percentage(abs(effect), 1 if series.doubt else 2)
    return f"{size} {_direction_word(series, effect)}" if size.strip("0.%") else "no change"


def interval_text(series: LaunchValues, interval: tuple[float, float]) -> str:
    """Describe an interval: ``99% interval 3.7% to 6.0%``, in the direction of the effect.

    With directions if it contains zero: ``99% interval 0.4% faster to 1.2% slower``.
    """
    low, high = interval
    if low < 0 < high:
        return f"99% interval {effect_text(series, low)} to {effect_text(series, high)}"
    smaller, larger = sorted((abs(low), abs(high)))
    return f"99% interval {change_percentage(smaller)} to {change_percentage(larger)}"


def variation_text(
    series: LaunchValues, interval: tuple[float, float], noun: str = "launches"
) -> str:
    """``launches vary by a factor of 2.7`` if that makes the interval useless; else empty.

    Useless is an interval that reaches beyond twice as fast or slow, on both sides of zero.
    """
    low, high = interval
    lowest, highest = (-1, 0.5) if series.better == "higher" else (-0.5, 1)
    sides = [[*filter(has_logarithm, side)] for side in (series.base, series.head)]
    if not low < 0 < high or (lowest <= low and high <= highest) or not any(sides):
        return ""
    factor = max(max(values) / min(values) for values in sides if values)
    return f"{noun} vary by a factor of {ratio(factor, 2).removesuffix('x')}"


def _direction_word(series: LaunchValues, effect: float) -> str:
    if series.unit in {"s", "ms", "us", "ns"} and series.better == "lower":
        return "slower" if effect > 0 else "faster"
    return "higher" if (effect > 0) == (series.better == "lower") else "lower"


# Values needed for a verdict: the 99% interval of the spread of ten reaches a factor of 2.3.
FEWEST: Final = 10


@dataclass(frozen=True, kw_only=True)
class HistorySamples:
    """Positive values of a series, oldest first; others have no logarithm.

    The head is judged by the `level`: that of the `pinned` runs, else of the oldest one; `later`
    values are of unpinned runs. `launches` are those of each run, the level's first.
    """

    level: tuple[float, ...]
    later: tuple[float, ...]
    pinned: bool
    launches: tuple[tuple[float, ...], ...]

    @property
    def steps(self) -> tuple[float, ...]:
        """Values whose differences estimate the run-to-run noise."""
        return (*self.level[-1:], *self.later)

    @property
    def count(self) -> int:
        """Number of samples, those of the level and later ones."""
        return len(self.level) + len(self.later)

    @property
    def missing(self) -> int:
        """Further runs needed before level or steps estimate the noise, at least."""
        return max(0, FEWEST - max(len(self.level), len(self.steps)))

    @property
    def description(self) -> str:
        """The number and kind of samples, in words."""
        if not self.later:
            return counted(self.count, "earlier run")
        if not self.pinned:
            return f"{counted(self.count, 'earlier run')}, none pinned; the oldest is the level"
        return f"{len(self.level)} pinned and {counted(len(self.later), 'later run')}"


def has_logarithm(value: float) -> bool:
    """Whether the value is positive and finite."""
    return math.isfinite(value) and value > 0
