"""Work and operations per second, MFU, token latency; totals and rates that metrics share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from gpubench_plugin.core.quality_flags import FAST_CALLS, PRECISION_UNUSED, STALLS
from gpubench_plugin.core.records import (
    CONFIDENCE,
    Metric,
    Observation,
    Samples,
    confidence_bounds_of,
)
from gpubench_plugin.core.student import t_quantile
from gpubench_plugin.measure.metrics._peaks import plausibility_limits
from gpubench_plugin.measure.metrics.base import metrics

# Batches of blocks put dependent neighbours together. A 95% interval covers the rate of 100
# independent blocks in 96% of simulated runs, of AR(1) blocks with φ = 0.5 in 95%, with φ = 0.9 in
# 88%; without batches in 95, 74 and 34% (docs/evidence/rate_interval.md).
_BATCHES = 10

# Ratio of mean and median call beyond which the median misleads about throughput.
_APART = 1.1


def timed_s(samples: Samples) -> float:
    """Total length of all timed blocks in seconds."""
    return math.fsum(samples.block_s)


def per_second(amount: float, samples: Samples) -> float:
    """Rate for an `amount` of work per call.

    A rate is total work over total time, never work over a median: the median hides every stall
    that hits fewer than half of the calls.
    """
    return amount * samples.calls / timed_s(samples)


def flops_per_device(observation: Observation) -> float | None:
    """FLOP/s per device, averaged over ranks, for TFLOP/s and MFU; None if none were counted.

    Each rank has one device. Per device is how the field reports it: A. Chowdhery et al., PaLM
    (2022), appendix B, https://arxiv.org/abs/2204.02311.
    """
    if not observation.work.flops:
        return None
    return per_second(observation.work.flops, observation.samples) / observation.world_size


def rounds_s(samples: Samples) -> tuple[float, ...]:
    """Rounds in seconds per call; single durations if they fill no round."""
    return samples.rounds_s or samples.durations_s


def median_step_s(samples: Samples) -> float:
    """Median round in seconds per call, the definition of ``step_time_s``."""
    import numpy as np

    return float(np.median(np.asarray(rounds_s(samples))))


def rate(name: str, amount: float, unit: str, observation: Observation) -> Iterator[Metric]:
    """Rate for an `amount` of work per call, with its confidence bounds."""
    value = per_second(amount, observation.samples)
    yield Metric(name=name, value=value, unit=unit, better="higher")
    confidence = observation.facts.get("confidence", CONFIDENCE)
    deviation = log_rate_half_width(observation.samples, confidence)
    if deviation is not None:
        low, high = confidence_bounds_of(name)
        yield Metric(name=low, value=value * math.exp(-deviation), unit=unit)
        yield Metric(name=high, value=value * math.exp(deviation), unit=unit)


def meanings(**rates: str) -> dict[str, str]:
    """Meanings of `rates` and of the ends of their confidence intervals, by metric name."""
    return rates | {
        end: f"{side} end of the confidence interval of {name}"
        for name in rates
        for end, side in zip(confidence_bounds_of(name), ("Lower", "Upper"), strict=True)
    }


def log_rate_half_width(samples: Samples, confidence: float) -> float | None:
    """Half-width of the confidence interval of the rate's logarithm; None below ten blocks.

    The ratio estimator of total time to total calls over batches of consecutive blocks, with
    Student's t; source: W. G. Cochran, Sampling Techniques, 3rd edition (1977), section 6.4, and
    for batches A. M. Law, Simulation Modeling and Analysis, 5th edition (2015), section 9.5.3. What
    neighbouring batches have in common widens it as in an AR(1) process.
    """
    count = len(samples.block_s)
    if count < _BATCHES:
        return None
    ends = [round(count * batch / _BATCHES) for batch in range(_BATCHES + 1)]
    lengths = [math.fsum(samples.block_s[a:b]) for a, b in pairwise(ends)]
    calls = [sum(samples.block_calls[a:b]) for a, b in pairwise(ends)]
    per_call = math.fsum(lengths) / sum(calls)
    residuals = [length - per_call * number for length, number in zip(lengths, calls, strict=True)]
    squares = math.fsum(residual**2 for residual in residuals)
    products = math.fsum(one * next_one for one, next_one in pairwise(residuals))
    correlation = max(0.0, products / squares) if squares else 0.0
    variance = squares * _BATCHES / (_BATCHES - 1) * (1 + correlation) / (1 - correlation)
    return t_quantile(confidence, _BATCHES - 1) * math.sqrt(variance) / math.fsum(lengths)


def rate_flags(samples: Samples) -> tuple[str, ...]:
    """Flag if throughput differs by more than 10% from what the median call implies."""
    mean_s, median_s = timed_s(samples) / samples.calls, median_step_s(samples)
    if mean_s > _APART * median_s:
        return (STALLS,)
    return (FAST_CALLS,) if median_s > _APART * mean_s else ()


@metrics(
    "if the benchmark states its work",
    **meanings(
        samples_per_s="Samples over the length of all blocks",
        tokens_per_s="Tokens over the length of all blocks",
        bytes_per_s="Bytes over the length of all blocks",
    ),
)
def throughput(observation: Observation) -> Iterator[Metric]:
    """Total work of all ranks over total time, for each kind of work stated by the benchmark."""
    work = observation.work
    for kind, amount in (("samples", work.samples), ("tokens", work.tokens), ("bytes", work.bytes)):
        if amount is not None:
            yield from rate(f"{kind}_per_s", amount, f"{kind}/s", observation)


@metrics("if operations are counted or stated", tflops="Counted operations per second and device")
def tflops(observation: Observation) -> Iterator[Metric]:
    """Counted operations over total time, per device."""
    flops_per_s = flops_per_device(observation)
    if flops_per_s is not None:
        yield Metric(name="tflops", value=flops_per_s / 1e12, unit="TFLOP/s", better="higher")


@metrics("devices with a known peak", mfu="Share of the device's dense peak reached")
def mfu(observation: Observation) -> Iterator[Metric]:
    """Model FLOPs utilization; none without a known peak of the device and dtype.

    Nor has a benchmark without a precision, or without products in it, an MFU. Source: A. Chowdhery
    et al., PaLM (2022), section 4.1, https://arxiv.org/abs/2204.02311.
    """
    if PRECISION_UNUSED in observation.samples.flags:
        return
    flops_per_s = flops_per_device(observation)
    if flops_per_s is None:
        return
    limits = plausibility_limits(observation.device_name)
    if (peak := limits.tflops.get(observation.precision)) is not None:
        share = flops_per_s / (peak * 1e12)
        yield Metric(name="mfu", value=share, unit="fraction", better="higher")


@metrics(
    "text generation",
    ttft_s="Time to first token: median prefill call",
    tpot_s="Time per output token of a row: median call over its tokens",
)
def token_latency(observation: Observation) -> Iterator[Metric]:
    """Time to first token and time per output token, for one row of the batch.

    Names as in MLPerf: https://docs.mlcommons.org/inference/benchmarks/language/llama2-70b/
    """
    for fact, name in (("first_tokens", "ttft_s"), ("output_tokens", "tpot_s")):
        if fact in observation.facts:
            value = median_step_s(observation.samples) / observation.facts[fact]
            yield Metric(name=name, value=value, unit="s", better="lower")
