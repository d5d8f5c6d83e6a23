"""Memory on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Observation


class PeakMemory(MetricSource):
    """The most memory any rank held at once."""

    name = "peak-memory"
    produces: ClassVar = {
        "peak_memory_bytes": "Most memory held at once, on the rank that held most",
    }
    where = "cpu (resident), cuda, mps, xpu"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The fact ``peak_memory_bytes``."""
        if "peak_memory_bytes" in seen.facts:
            value = seen.facts["peak_memory_bytes"]
            yield Metric(name="peak_memory_bytes", value=value, unit="bytes", better="lower")
