"""Metrics of step time: the median, the sample size, warm-up, the first step, denoising steps."""

from __future__ import annotations

from math import fsum
from statistics import median
from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.interval import median_interval
from gpubench_plugin.measure.metrics._plausibility import rounds_s
from gpubench_plugin.measure.metrics._rates import rate
from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import CONFIDENCE, Metric, tells_quantile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpubench_plugin.records import Observation, Samples


_QUANTILES = {"step_time_p95_s": 0.95, "step_time_p99_s": 0.99}


class StepTime(MetricSource):
    """The median round with its confidence interval, and the spread of all durations.

    The level of the interval is the fact ``confidence``, 95 % where there is none. Too few rounds
    for that level have no interval. Where there are no ``effective_rounds`` beside it, the rounds
    are too few to know how they depend on each other, and the interval assumes that they do not.
    Percentiles are interpolated linearly, as numpy does; of durations that were too many to keep
    they are the sketch's. One is there only where so many durations were timed that at least one
    lies beyond it: of fewer it would be the maximum.
    """

    name = "step-time"
    produces: ClassVar = {
        "step_time_s": "Median of the rounds",
        "step_time_ci_low_s": "Lower end of that median's confidence interval",
        "step_time_ci_high_s": "Upper end of the same interval",
        "effective_rounds": "Independent rounds that would tell as much as these",
        "step_time_mean_s": "Mean of the durations",
        "step_time_min_s": "Shortest duration",
        "step_time_max_s": "Longest duration",
        "step_time_p95_s": "95th percentile of 20 durations or more",
        "step_time_p99_s": "99th percentile of 100 durations or more",
    }

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """Seconds per call of the step."""
        rounds = rounds_s(seen.samples)
        interval = median_interval(rounds, seen.facts.get("confidence", CONFIDENCE))
        if interval is None:
            yield _seconds("step_time_s", median(rounds))
        else:
            yield _seconds("step_time_s", interval.median)
            yield Metric(name="step_time_ci_low_s", value=interval.low, unit="s")
            yield Metric(name="step_time_ci_high_s", value=interval.high, unit="s")
            if interval.effective_count is not None:
                yield Metric(name="effective_rounds", value=interval.effective_count, unit="count")
        yield from _spread(seen)


def _spread(seen: Observation) -> Iterator[Metric]:
    fractions = {
        name: fraction
        for name, fraction in _QUANTILES.items()
        if tells_quantile(seen.samples.timing.durations, fraction)
    }
    mean_s, shortest_s, longest_s, *quantiles_s = _statistics(seen.samples, fractions.values())
    # The ranks' own longest are there even where not every duration could be sent.
    longest_s = max((rank.max_s for rank in seen.ranks), default=longest_s)
    yield _seconds("step_time_mean_s", mean_s)
    yield _seconds("step_time_min_s", shortest_s)
    yield _seconds("step_time_max_s", longest_s)
    yield from map(_seconds, fractions, quantiles_s)


def _statistics(samples: Samples, fractions: Iterable[float]) -> tuple[float, ...]:
    """Mean, minimum, maximum and the quantiles of all durations."""
    import numpy as np

    if (sketch := samples.sketch) is not None:
        return (sketch.mean, sketch.least, sketch.most, *sketch.quantiles(list(fractions)))
    durations = np.asarray(samples.durations_s)
    extremes = durations.mean(), durations.min(), durations.max()
    return (*extremes, *np.quantile(durations, list(fractions)))


def _seconds(name: str, value: float) -> Metric:
    return Metric(name=name, value=float(value), unit="s", better="lower")


class Rounds(MetricSource):
    """How many rounds the median and its interval rest on."""

    name = "rounds"
    produces: ClassVar = {
        "rounds": "Whole rounds that were timed",
    }

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The number of whole rounds."""
        yield Metric(name="rounds", value=float(seen.samples.rounds), unit="count")


class Warmup(MetricSource):
    """The calls between the first step and the first timed one."""

    name = "warmup"
    produces: ClassVar = {
        "warmup_s": "Time of the calls between the first and the first timed one",
        "warmup_iterations": "Number of those calls",
    }
    where = "everywhere but adopted tests"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """Their time and their number, where somebody saw them."""
        if not seen.samples.warmup_calls and seen.samples.first_step_s is None:
            return
        yield Metric(name="warmup_s", value=fsum(seen.samples.warmup_s), unit="s")
        calls = float(seen.samples.warmup_calls)
        yield Metric(name="warmup_iterations", value=calls, unit="count")


class FirstStep(MetricSource):
    """The very first call of the step, before the warm-up."""

    name = "first-step"
    produces: ClassVar = {
        "first_step_s": "The very first call",
    }
    where = "where the first call was seen"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """Seconds until the first step is done, where somebody saw it."""
        value = seen.samples.first_step_s
        if value is not None:
            yield Metric(name="first_step_s", value=value, unit="s", better="lower")


class Iterations(MetricSource):
    """Denoising steps over total time, each of a whole batch."""

    name = "iterations"
    produces: ClassVar = {
        "iterations_per_s": "Denoising steps over the length of all blocks",
        "iterations_ci_low_per_s": "Lower end of that rate's confidence interval",
        "iterations_ci_high_per_s": "Upper end of that rate's confidence interval",
    }
    where = "inference of denoising networks"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The fact ``iterations_per_call`` as a rate."""
        if "iterations_per_call" in seen.facts:
            amount = seen.facts["iterations_per_call"]
            yield from rate("iterations_per_s", amount, "iterations/s", seen)
