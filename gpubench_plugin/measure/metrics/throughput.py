"""Throughput metrics: work and operations per second, MFU, token latency."""

from __future__ import annotations

from collections.abc import Iterator

from gpubench_plugin.core.quality_flags import PRECISION_UNUSED
from gpubench_plugin.core.records import Metric, Observation
from gpubench_plugin.measure.metrics._peaks import flops_peak
from gpubench_plugin.measure.metrics._rates import flops_per_device, meanings, median_step_s, rate
from gpubench_plugin.measure.metrics.base import metrics


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


@metrics(
    "if operations are counted or stated",
    tflops="Counted operations per second and device",
)
def tflops(observation: Observation) -> Iterator[Metric]:
    """Counted operations over total time, per device."""
    flops_per_s = flops_per_device(observation)
    if flops_per_s is not None:
        yield Metric(name="tflops", value=flops_per_s / 1e12, unit="TFLOP/s", better="higher")


@metrics(
    "devices with a known peak",
    mfu="Share of the device's dense peak reached",
)
def mfu(observation: Observation) -> Iterator[Metric]:
    """Model FLOPs utilization; none without a known peak of the device and dtype.

    Nor has a benchmark without a precision, or without products in it, an MFU. Source: A. Chowdhery
    et al., PaLM (2022), section 4.1, https://arxiv.org/abs/2204.02311.
    """
    if PRECISION_UNUSED in observation.samples.flags:
        return
    flops_per_s = flops_per_device(observation)
    peak = flops_peak(observation.device_name, observation.precision)
    if flops_per_s is not None and peak is not None:
        share = flops_per_s / peak.flops_per_s
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
