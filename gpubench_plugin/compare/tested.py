"""One look at many series with t tests: numbers in, what was found of each series out.

Imported where something is tested, since numpy and scipy come with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpubench_plugin.compare.plain import better_bar, fraction, log_ratio, verdict, worse_bar
from gpubench_plugin.compare.series import Samples, Series, change, too_loud, within
from gpubench_plugin.compare.statistics import (
    Estimates,
    find,
    level,
    paired,
    prediction,
    spread_about_mean,
    spread_of_steps,
    visible,
)
from gpubench_plugin.records import Method, Verdict, VerdictKind


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The numbers of one series that a look needs.

    `estimates` are of this series alone; `spread` is the standard deviation of the effects that
    they come from, `noise` that of the log value of one launch; `base` and `head` are geometric
    means, so that the effect is exactly theirs; `launches` counts pairs or earlier runs.
    """

    series: Series
    estimates: Estimates
    spread: float
    noise: float
    base: float
    head: float
    launches: int


@dataclass(frozen=True, kw_only=True)
class Tested:
    """What one look found of one series, as fractions.

    `level` is the p value at which it would have been called beside the others.
    """

    sample: Sample
    kind: VerdictKind
    effect: float
    interval: tuple[float, float]
    visible: float
    level: float

    @property
    def finding(self) -> str:
        """Effect and interval in words, ``4.1 % slower, 99 % interval 3.2 to 5.0 %``, or neither.

        Where launches are too loud for that, how loud.
        """
        series = self.sample.series
        words = f"{change(series, self.effect)}, {within(series, self.interval)}"
        return too_loud(series, self.interval) or words

    def verdict(self, method: Method, reason: str, *, pairs_needed: int | None = None) -> Verdict:
        """The verdict with its `reason`."""
        sample = self.sample
        return verdict(
            sample.series,
            self.kind,
            method,
            reason,
            base=sample.base,
            head=sample.head,
            effect=self.effect,
            launches=sample.launches,
            interval=self.interval,
            smallest_visible_effect=self.visible,
            pairs_needed=pairs_needed,
        )


def paired_sample(series: Series, pairs: int) -> Sample:
    """The sample of the first `pairs` pairs, two or more, of positive values."""
    base, head = series.base[:pairs], series.head[:pairs]
    effects = np.array([log_ratio(b, h, series.better) for b, h in zip(base, head, strict=True)])
    spread = float(effects.std(ddof=1))
    return Sample(
        series=series,
        estimates=paired(effects),
        spread=spread,
        noise=spread / math.sqrt(2),  # a difference has the noise of two launches
        base=_geometric_mean(base),
        head=_geometric_mean(head),
        launches=pairs,
    )


def prediction_sample(series: Series, samples: Samples) -> Sample:
    """The sample of the head against earlier ones, all positive.

    The noise is what they tell themselves, or what later runs tell, whichever is more: runs of one
    sitting know nothing of the noise between days, and later ones may be few.
    """
    sign = -1.0 if series.better == "higher" else 1.0
    level, steps = sign * np.log(samples.level), sign * np.log(samples.steps)
    spreads = [spread_about_mean(level)] if samples.level_tells else []
    spreads += [spread_of_steps(steps)] if samples.steps_tell else []
    spread = max(spreads, key=lambda one: float(one.deviation))
    return Sample(
        series=series,
        estimates=prediction(level, sign * np.log(series.head), spread),
        spread=float(spread.deviation),
        noise=float(spread.deviation),
        base=_geometric_mean(samples.level),
        head=_geometric_mean(series.head),
        launches=samples.count,
    )


def look(samples: Sequence[Sample], m: int) -> list[Tested]:
    """What one look at all `samples` finds, in their order; `m` as in :func:`statistics.find`."""
    estimates = Estimates(
        mean=np.array([float(sample.estimates.mean) for sample in samples]),
        error=np.array([float(sample.estimates.error) for sample in samples]),
        freedom=np.array([float(sample.estimates.freedom) for sample in samples]),
    )
    series = [sample.series for sample in samples]
    worse = np.array([worse_bar(one.limit, one.better) for one in series])
    better = np.array([better_bar(one.limit, one.better) for one in series])
    found = find(estimates, worse, better, m=m)
    levels = level(found.rejected, m)
    least = visible(estimates, worse, levels)
    return [
        Tested(
            sample=sample,
            kind="regressed"
            if found.regressed[number]
            else "improved"
            if found.improved[number]
            else "unchanged"
            if found.unchanged[number]
            else "inconclusive",
            effect=fraction(float(estimates.mean[number]), sample.series.better),
            interval=(
                fraction(float(found.low[number]), sample.series.better),
                fraction(float(found.high[number]), sample.series.better),
            ),
            visible=fraction(float(least[number]), sample.series.better),
            level=float(levels[number]),
        )
        for number, sample in enumerate(samples)
    ]


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))
