"""Step time metrics: median, sample size, warm-up, first step, denoising steps, variants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import fsum
from statistics import median

from gpubench_plugin.core.records import (
    CONFIDENCE,
    MINIMA,
    Better,
    Metric,
    Observation,
    confidence_bounds_of,
    has_quantile,
)
from gpubench_plugin.measure.interval import median_interval
from gpubench_plugin.measure.metrics.base import metrics
from gpubench_plugin.measure.metrics.throughput import (
    meanings,
    median_step_s,
    rate,
    rounds_s,
    timed_s,
)

_QUANTILES = {"step_time_p95_s": 0.95, "step_time_p99_s": 0.99}


@metrics(
    rounds="Complete rounds timed",
    step_time_s="Median of the rounds",
    step_time_ci_low_s="Lower end of the median's confidence interval",
    step_time_ci_high_s="Upper end of the median's confidence interval",
    effective_rounds="Effective number of independent rounds",
    step_time_mean_s="Mean of the durations",
    step_time_min_s="Shortest duration",
    step_time_max_s="Longest duration",
    step_time_p95_s="95th percentile, given at least 20 durations",
    step_time_p99_s="99th percentile, given at least 100 durations",
    **{name: f"Typical minimum of {rounds} of the rounds" for rounds, name in MINIMA.items()},
)
def step_time(observation: Observation) -> Iterator[Metric]:
    """Median round with confidence interval, and statistics of all durations.

    The interval is from order statistics, widened by how much neighbouring rounds depend on each
    other; of several launches it is over these. Its level is the fact ``confidence``, 95% by
    default; too few rounds have none. Without ``effective_rounds`` the rounds are too few to
    estimate their autocorrelation, and are taken as independent. Percentiles are interpolated
    linearly, of too many durations to store in a sample of them, and need a duration beyond them.
    A typical minimum is the median of all minima of so many rounds: minima over unequal numbers of
    rounds are compared by these.
    """
    rounds = rounds_s(observation.samples)
    interval = median_interval(rounds, observation.facts.get("confidence", CONFIDENCE))
    if interval is None:
        yield _seconds("step_time_s", median(rounds))
    else:
        yield _seconds("step_time_s", interval.median)
        yield Metric(name="step_time_ci_low_s", value=interval.low, unit="s")
        yield Metric(name="step_time_ci_high_s", value=interval.high, unit="s")
        if interval.effective_count is not None:
            yield Metric(name="effective_rounds", value=interval.effective_count, unit="count")
    yield Metric(name="rounds", value=float(observation.samples.rounds), unit="count")
    yield from _minima(rounds)
    yield from _spread(observation)


def _minima(rounds: Sequence[float]) -> Iterator[Metric]:
    """Medians of the minima of fewer rounds, by which those over unequal numbers are compared.

    The minimum of m values is below the quantile q with probability 1 - (1 - q)^m. Unlike their
    mean, the median does not contain the rare case that all of them were disturbed.
    """
    import numpy as np

    fractions = {name: 1 - 0.5 ** (1 / n) for n, name in MINIMA.items() if n <= len(rounds)}
    quantiles = np.quantile(rounds, [*fractions.values()], method="weibull")
    yield from map(_seconds, fractions, quantiles)


def _spread(observation: Observation) -> Iterator[Metric]:
    """Statistics of all durations."""
    import numpy as np

    samples = observation.samples
    fractions = {
        name: fraction
        for name, fraction in _QUANTILES.items()
        if has_quantile(samples.timing.durations, fraction)
    }
    spread_s = np.asarray(samples.spread_s)
    mean_s = timed_s(samples) / samples.calls if samples.sample_s else spread_s.mean()
    # Ranks send their longest even if they cannot send every duration.
    longest_s = max((rank.max_s for rank in observation.ranks), default=spread_s.max())
    yield _seconds("step_time_mean_s", mean_s)
    yield _seconds("step_time_min_s", spread_s.min())
    yield _seconds("step_time_max_s", longest_s)
    yield from map(_seconds, fractions, np.quantile(spread_s, [*fractions.values()]))


def _seconds(name: str, value: float) -> Metric:
    return Metric(name=name, value=float(value), unit="s", better="lower")


@metrics(
    "everywhere except adopted tests",
    warmup_s="Time between the first call and the first timed call",
    warmup_iterations="Number of warm-up calls after the first call",
)
def warmup(observation: Observation) -> Iterator[Metric]:
    """Calls between the first one and the first timed one, if they were observed."""
    samples = observation.samples
    if samples.warmup_calls or samples.first_step_s is not None:
        yield Metric(name="warmup_s", value=fsum(samples.warmup_s), unit="s")
        yield Metric(name="warmup_iterations", value=float(samples.warmup_calls), unit="count")


@metrics("if the first call was observed", first_step_s="First call")
def first_step(observation: Observation) -> Iterator[Metric]:
    """First call of the step, before the warm-up, even if the untimed check made it.

    Of a convergence benchmark it is the first training, without evaluations. It is not observed of
    an own step beside a trainer, whose check has run what the step calls, of a subject that has
    taken steps before, in a test that called its ``model`` before ``gpubench``, and in adopted
    tests.
    """
    value = observation.samples.first_step_s
    if value is not None:
        yield Metric(name="first_step_s", value=value, unit="s", better="lower")


@metrics("compiled models", compile_time_s="First call minus a steady one")
def compile_time(observation: Observation) -> Iterator[Metric]:
    """Extra time of the first step of a compiled model, the choice of kernels included.

    None if an earlier call compiled it: then the first step is no longer than a steady one.
    """
    first_s = observation.samples.first_step_s
    if first_s is None or not observation.facts.get("compiled"):
        return
    extra_s = first_s - median_step_s(observation.samples)
    if extra_s > 0:
        yield Metric(name="compile_time_s", value=extra_s, unit="s", better="lower")


@metrics("2 ranks or more", rank_skew_s="Median of the slowest rank minus that of the fastest")
def rank_skew(observation: Observation) -> Iterator[Metric]:
    """Range of the ranks' median rounds, each of all its own rounds."""
    if len(observation.ranks) > 1:
        medians = [rank.median_s for rank in observation.ranks]
        skew_s = max(medians) - min(medians)
        yield Metric(name="rank_skew_s", value=skew_s, unit="s", better="lower")


@metrics(
    "inference of denoising models",
    needs="iterations_per_call",
    **meanings(iterations_per_s="Denoising steps over the length of all blocks"),
)
def iterations(observation: Observation) -> Iterator[Metric]:
    """Denoising steps of a whole batch per second."""
    amount = observation.facts["iterations_per_call"]
    yield from rate("iterations_per_s", amount, "iterations/s", observation)


_VARIANT, _SPEED_UP = "variant_", "speed_up"


@metrics(
    "gpubench.compare",
    needs="variant_",
    variant_eager_step_time_s="Median of the rounds of a variant, here eager",
    variant_eager_step_time_ci_low_s="Lower end of that median's confidence interval",
    variant_eager_step_time_ci_high_s="Upper end of that median's confidence interval",
    variant_eager_rounds="Complete rounds timed of the variant",
    speed_up_compiled="Speed-up of a variant, here compiled, over the first; speed_up of two",
    speed_up_compiled_ci_low="Lower end of that speed-up's confidence interval",
    speed_up_compiled_ci_high="Upper end of that speed-up's confidence interval",
)
def variants(observation: Observation) -> Iterator[Metric]:
    """Step time of each variant, and its speed-up over the first, by neighbouring turns.

    A speed-up is the median over the passes of the first variant's time of a turn over the other's,
    its interval from order statistics, widened by how much neighbouring passes depend on each
    other. Of two variants there is one, ``speed_up``, with ``speed_up_ci_low`` and ``…_high``.
    """
    facts = observation.facts
    bounds = {bound for name in facts for bound in confidence_bounds_of(name)}
    better: Better
    for name, value in facts.items():
        if name.startswith(_SPEED_UP):
            better = "none" if name in bounds else "higher"
            yield Metric(name=name, value=value, unit="1", better=better)
        elif name.startswith(_VARIANT):
            is_time = name.endswith("_s")
            better = "lower" if is_time and name not in bounds else "none"
            yield Metric(name=name, value=value, unit="s" if is_time else "count", better=better)
