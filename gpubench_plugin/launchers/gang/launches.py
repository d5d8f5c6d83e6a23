"""Several launches of one benchmark, made one measurement: each is a sample of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import fsum
from statistics import fmean, median, stdev
from typing import Any, Final

from gpubench_plugin.measure import t_quantile
from gpubench_plugin.records import Launch, Measurement, Metric, RankTimes, Samples, ends_of

_MOST: Final = 300.0


def over_launches(launches: Sequence[Measurement]) -> Measurement:
    """One measurement of all `launches`: the median of each metric, all samples, kept apart too.

    A metric that some launch lacks is left out. Of those that have an interval it is over the
    launches, which differ by more than any of them knows of itself.
    """
    first = launches[0]
    if len(launches) == 1:
        return first
    return replace(
        first,
        launches=len(launches),
        samples=_joined([launch.samples for launch in launches if launch.samples is not None]),
        metrics=_metrics_over(launches),
        flags=_each_once(flag for launch in launches for flag in launch.flags),
        per_launch=tuple(
            Launch(samples=launch.samples, metrics=launch.metrics, flags=launch.flags)
            for launch in launches
        ),
        ranks=tuple(map(_over_launches, zip(*(launch.ranks for launch in launches), strict=True))),
    )


def _metrics_over(launches: Sequence[Measurement]) -> dict[str, Metric]:
    confidence = launches[0].confidence
    within = {end for metric in launches[0].metrics for end in ends_of(metric)}
    merged: dict[str, Metric] = {}
    for name, metric in launches[0].metrics.items():
        values = [launch.metrics[name].value for launch in launches if name in launch.metrics]
        if name in within or len(values) < len(launches):
            continue
        merged[name] = replace(metric, value=median(values))
        if (name == "step_time_s" or name.endswith("_per_s")) and min(values) > 0:
            ends = zip(ends_of(name), interval_over(values, confidence), strict=True)
            merged |= {end: Metric(name=end, value=value, unit=metric.unit) for end, value in ends}
    return merged


def interval_over(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """The interval of what two launches or more measured, each of them one sample.

    Student's t of the logarithms, with one degree of freedom less than launches: two launches know
    little of a third one, and the interval says so. It holds their median in any case.
    """
    logs = [math.log(value) for value in values]
    reach = t_quantile(confidence, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    # Beyond this the exponential has no float; nothing is known then either.
    low, high = (fmean(logs) + side * min(reach, _MOST) for side in (-1, 1))
    middle = median(values)
    return min(math.exp(low), middle), max(math.exp(high), middle)


def _over_launches(rows: Sequence[RankTimes]) -> RankTimes:
    """One rank's row of all launches: extremes and totals of all, the median of each quantile.

    A quantile that some launch cannot tell is left out.
    """

    def middle(name: str) -> float | None:
        values: list[float | None] = [getattr(row, name) for row in rows]
        known = [value for value in values if value is not None]
        return median(known) if len(known) == len(values) else None

    return replace(
        rows[0],
        count=sum(row.count for row in rows),
        min_s=min(row.min_s for row in rows),
        p5_s=middle("p5_s"),
        median_s=median(row.median_s for row in rows),
        p95_s=middle("p95_s"),
        p99_s=middle("p99_s"),
        max_s=max(row.max_s for row in rows),
        total_s=fsum(row.total_s for row in rows),
    )


def _joined(parts: Sequence[Samples]) -> Samples | None:
    """The rounds of all launches, one after the other.

    What a duration is, one call or the mean of many, each launch has calibrated for itself; what
    they have in common is the median call of a round.
    """
    if not parts:
        return None
    return Samples(
        timer=parts[0].timer,
        durations_s=_chained(part.rounds_s for part in parts),
        block_s=_chained(part.block_s for part in parts),
        block_calls=_chained(part.block_calls for part in parts),
        first_step_s=max(
            (part.first_step_s for part in parts if part.first_step_s is not None), default=None
        ),
        warmup_s=_chained(part.warmup_s for part in parts),
        warmup_calls=sum(part.warmup_calls for part in parts),
        flags=_each_once(flag for part in parts for flag in part.flags),
    )


def _chained(parts: Iterable[Iterable[Any]]) -> tuple[Any, ...]:
    return tuple(value for part in parts for value in part)


def _each_once(flags: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(flags))
