"""Merging of several launches into one measurement, each launch being one sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from math import fsum
from statistics import fmean, median, stdev
from typing import Final

from gpubench_plugin.core.records import (
    LaunchSample,
    Measurement,
    Metric,
    RankTimes,
    Samples,
    confidence_bounds_of,
)
from gpubench_plugin.core.student import t_quantile

_MAX_LOG_WIDTH: Final = 300.0
"""Beyond it the exponential overflows or underflows a float; nothing is known then either."""


def merge_launches(launches: Sequence[Measurement]) -> Measurement:
    """Merge `launches`: median of each metric, with all samples per launch.

    A metric that some launch lacks is left out. Intervals are over the launches, whose variation
    exceeds that within one.
    """
    first_launch = launches[0]
    if len(launches) == 1:
        return first_launch
    return replace(
        first_launch,
        launches=len(launches),
        samples=_concatenated(
            [launch.samples for launch in launches if launch.samples is not None]
        ),
        metrics=_metrics_over(launches),
        flags=tuple(dict.fromkeys(flag for launch in launches for flag in launch.flags)),
        per_launch=tuple(
            LaunchSample(samples=launch.samples, metrics=launch.metrics, flags=launch.flags)
            for launch in launches
        ),
        ranks=tuple(map(_over_launches, zip(*(launch.ranks for launch in launches), strict=True))),
    )


def disagreement(launches: Sequence[Measurement]) -> str:
    """Settings that differ between `launches`, as batch sizes do that each fitted; or empty."""
    keys = dict.fromkeys(key for launch in launches for key in launch.settings)
    values = {key: [launch.settings.get(key) for launch in launches] for key in keys}
    texts = [
        f"{key}={', '.join(map(str, settings))}"
        for key, settings in values.items()
        if any(value != settings[0] for value in settings)
    ]
    return f"the launches differ, state a number: {'; '.join(texts)}" if texts else ""


def _metrics_over(launches: Sequence[Measurement]) -> dict[str, Metric]:
    confidence = launches[0].confidence
    interval_ends = {end for metric in launches[0].metrics for end in confidence_bounds_of(metric)}
    metrics: dict[str, Metric] = {}
    for name, metric in launches[0].metrics.items():
        values = [launch.metrics[name].value for launch in launches if name in launch.metrics]
        if name in interval_ends or len(values) < len(launches):
            continue
        metrics[name] = replace(metric, value=median(values))
        has_interval = set(confidence_bounds_of(name)) <= launches[0].metrics.keys()
        is_time_or_rate = name == "step_time_s" or name.endswith("_per_s")
        if (has_interval or is_time_or_rate) and min(values) > 0:
            ends = zip(confidence_bounds_of(name), interval_over(values, confidence), strict=True)
            metrics |= {end: Metric(name=end, value=value, unit=metric.unit) for end, value in ends}
    return metrics


def interval_over(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """Confidence interval of the median over two or more launches.

    Student's t of the logarithms, with one degree of freedom less than launches, so that it is wide
    for two. It contains their median in any case.
    """
    logs = [math.log(value) for value in values]
    half_width = t_quantile(confidence, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    low, high = (fmean(logs) + side * min(half_width, _MAX_LOG_WIDTH) for side in (-1, 1))
    centre = median(values)
    return min(math.exp(low), centre), max(math.exp(high), centre)


def _over_launches(rows: Sequence[RankTimes]) -> RankTimes:
    """Merge one rank's rows: extremes and totals, median of each quantile.

    A quantile that some launch lacks is left out.
    """

    def median_of(name: str) -> float | None:
        values: list[float | None] = [getattr(row, name) for row in rows]
        known_values = [value for value in values if value is not None]
        return median(known_values) if len(known_values) == len(values) else None

    return replace(
        rows[0],
        count=sum(row.count for row in rows),
        min_s=min(row.min_s for row in rows),
        p5_s=median_of("p5_s"),
        median_s=median(row.median_s for row in rows),
        p95_s=median_of("p95_s"),
        p99_s=median_of("p99_s"),
        max_s=max(row.max_s for row in rows),
        total_s=fsum(row.total_s for row in rows),
    )


def _concatenated(samples: Sequence[Samples]) -> Samples | None:
    """Concatenate the rounds of all launches.

    Each launch calibrates its calls per duration, so their durations are not comparable, but the
    medians of rounds are.
    """
    if not samples:
        return None
    return Samples(
        timer=samples[0].timer,
        durations_s=tuple(each for part in samples for each in part.rounds_s),
        block_s=tuple(each for part in samples for each in part.block_s),
        block_calls=tuple(each for part in samples for each in part.block_calls),
        first_step_s=max(
            (part.first_step_s for part in samples if part.first_step_s is not None), default=None
        ),
        warmup_s=tuple(each for part in samples for each in part.warmup_s),
        warmup_calls=sum(part.warmup_calls for part in samples),
        flags=tuple(dict.fromkeys(flag for part in samples for flag in part.flags)),
    )
