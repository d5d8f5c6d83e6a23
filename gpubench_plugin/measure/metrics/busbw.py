"""Bus bandwidth of a collective."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.metrics._totals import per_second
from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Observation


class BusBandwidth(MetricSource):
    """Algorithm bandwidth times a factor of the collective and the number of ranks.

    It is what the busiest link carried, so that it can be compared with the hardware's peak and
    between numbers of ranks. Source:
    https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    """

    name = "busbw"
    produces: ClassVar = {
        "busbw_bytes_per_s": "The same times the factor of the collective and the ranks",
    }
    where = "collectives"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The facts ``collective_bytes`` times ``bus_factor`` per call, as a rate."""
        if {"collective_bytes", "bus_factor"} <= seen.facts.keys():
            on_bus = seen.facts["collective_bytes"] * seen.facts["bus_factor"]
            rate = per_second(on_bus, seen.samples)
            yield Metric(name="busbw_bytes_per_s", value=rate, unit="bytes/s", better="higher")
