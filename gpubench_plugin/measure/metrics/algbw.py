"""Algorithm bandwidth of a collective."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.metrics._totals import per_second
from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Observation


class AlgorithmBandwidth(MetricSource):
    """The size of the message over the time of one collective.

    Source: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md, whose time is the
    mean over the calls: here the length of all timed blocks, each the slowest rank's, over the
    timed calls.
    """

    name = "algbw"
    produces: ClassVar = {
        "algbw_bytes_per_s": "Size of the message over the time of a collective",
    }
    where = "collectives"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The fact ``collective_bytes`` per call, as a rate."""
        if "collective_bytes" in seen.facts:
            rate = per_second(seen.facts["collective_bytes"], seen.samples)
            yield Metric(name="algbw_bytes_per_s", value=rate, unit="bytes/s", better="higher")
