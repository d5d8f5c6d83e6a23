"""How much work is done per second, by all ranks together."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.metrics._totals import per_second
from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Observation


class Throughput(MetricSource):
    """Total work over total time, for each kind of work that the benchmark states."""

    name = "throughput"
    produces: ClassVar = {
        "samples_per_s": "Samples over the length of all blocks",
        "tokens_per_s": "Tokens over the length of all blocks",
        "bytes_per_s": "Bytes over the length of all blocks",
    }
    where = "where the benchmark states its work"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """Samples, tokens and bytes per second."""
        amounts = {
            "samples": seen.work.samples,
            "tokens": seen.work.tokens,
            "bytes": seen.work.bytes,
        }
        for kind, amount in amounts.items():
            if amount is not None:
                rate = per_second(amount, seen.samples)
                yield Metric(name=f"{kind}_per_s", value=rate, unit=f"{kind}/s", better="higher")
