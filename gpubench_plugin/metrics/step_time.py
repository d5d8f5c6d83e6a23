"""How long a step takes."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from gpubench_plugin.interval import median_interval
from gpubench_plugin.metrics._medians import rounds_s
from gpubench_plugin.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Observation

_CONFIDENCE = 0.95


class StepTime(MetricSource):
    """The median round with its confidence interval, and the spread of all durations.

    The level of the interval is the fact ``confidence``, 95 % where there is none. Too few rounds
    for that level have no interval. Percentiles are interpolated linearly, as numpy does.
    """

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """Seconds per call of the step."""
        rounds = rounds_s(seen.samples)
        interval = median_interval(rounds, seen.facts.get("confidence", _CONFIDENCE))
        if interval is None:
            yield _seconds("step_time_s", median(rounds))
        else:
            yield _seconds("step_time_s", interval.median)
            yield Metric(name="step_time_ci_low_s", value=interval.low, unit="s")
            yield Metric(name="step_time_ci_high_s", value=interval.high, unit="s")
        yield from _spread(seen)


def _spread(seen: Observation) -> Iterator[Metric]:
    import numpy as np

    durations = np.asarray(seen.samples.durations_s)
    # The ranks' own longest are there even where not every duration could be sent.
    longest = max((rank.max_s for rank in seen.ranks), default=durations.max())
    yield _seconds("step_time_mean_s", durations.mean())
    yield _seconds("step_time_min_s", durations.min())
    yield _seconds("step_time_max_s", longest)
    yield _seconds("step_time_p95_s", np.quantile(durations, 0.95))
    yield _seconds("step_time_p99_s", np.quantile(durations, 0.99))


def _seconds(name: str, value: float) -> Metric:
    return Metric(name=name, value=float(value), unit="s", better="lower")
