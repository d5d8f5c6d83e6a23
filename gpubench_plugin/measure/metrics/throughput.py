"""Metrics of throughput: work and operations per second, MFU, and token latency."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.flags import PRECISION_UNUSED
from gpubench_plugin.measure.metrics._peaks import flops_peak
from gpubench_plugin.measure.metrics._plausibility import flops_per_device, median_step_s
from gpubench_plugin.measure.metrics._rates import rate
from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Observation


class Throughput(MetricSource):
    """Total work over total time, for each kind of work that the benchmark states.

    The work is that of all ranks together. The interval is that of the rate itself, from the blocks
    as they vary: the median's would leave out what the median does.
    """

    name = "throughput"
    produces: ClassVar = {
        "samples_per_s": "Samples over the length of all blocks",
        "tokens_per_s": "Tokens over the length of all blocks",
        "bytes_per_s": "Bytes over the length of all blocks",
        **{
            f"{kind}_ci_{end}_per_s": f"{words} end of that rate's confidence interval"
            for kind in ("samples", "tokens", "bytes")
            for end, words in (("low", "Lower"), ("high", "Upper"))
        },
    }
    where = "where the benchmark states its work"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """Samples, tokens and bytes per second, each with its interval."""
        amounts = {
            "samples": seen.work.samples,
            "tokens": seen.work.tokens,
            "bytes": seen.work.bytes,
        }
        for kind, amount in amounts.items():
            if amount is not None:
                yield from rate(f"{kind}_per_s", amount, f"{kind}/s", seen)


class Tflops(MetricSource):
    """The counted operations over the total time, per device."""

    name = "tflops"
    produces: ClassVar = {
        "tflops": "Counted operations per second and device",
    }
    where = "where operations are counted or stated"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """TFLOP/s per device, where operations were counted."""
        reached = flops_per_device(seen)
        if reached is not None:
            yield Metric(name="tflops", value=reached / 1e12, unit="TFLOP/s", better="higher")


class Mfu(MetricSource):
    """The share of the device's dense peak that the counted operations reach.

    Source: A. Chowdhery et al., PaLM (2022), section 4.1, https://arxiv.org/abs/2204.02311. A
    device or a type without a known peak has no MFU: that of another one would be a wrong number.
    Nor has a benchmark that uses no precision, or none of whose products is in it.
    """

    name = "mfu"
    produces: ClassVar = {
        "mfu": "Share of the device's dense peak that counted operations reach",
    }
    where = "devices whose peak is known"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The fraction of the dense peak, where operations were counted and the peak is known."""
        if PRECISION_UNUSED in seen.samples.flags:
            return
        reached, peak = flops_per_device(seen), flops_peak(seen.device_name, seen.precision)
        if reached is not None and peak is not None:
            share = reached / peak.flops_per_s
            yield Metric(name="mfu", value=share, unit="fraction", better="higher")


class TokenLatency(MetricSource):
    """The time to the first token and the time per output token, of a row of the batch.

    It is how long a reader of generated text waits.

    MLPerf calls them so: https://docs.mlcommons.org/inference/benchmarks/language/llama2-70b/
    """

    name = "token-latency"
    produces: ClassVar = {
        "ttft_s": "Time to first token: median call that takes in prompts",
        "tpot_s": "Time per output token of a row: median call over its tokens",
    }
    where = "generation of text"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """Median call over the tokens of a row in it: facts ``first_tokens``, ``output_tokens``."""
        names = {"first_tokens": "ttft_s", "output_tokens": "tpot_s"}
        for fact, name in names.items():
            if fact in seen.facts:
                value = median_step_s(seen.samples) / seen.facts[fact]
                yield Metric(name=name, value=value, unit="s", better="lower")
