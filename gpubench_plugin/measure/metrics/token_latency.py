"""How long a reader of generated text waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.metrics._medians import median_step_s
from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Observation


class TokenLatency(MetricSource):
    """The time to the first token and the time per output token, of a row of the batch.

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
