"""Memory on the device, and of the process."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Observation


class PeakMemory(MetricSource):
    """The most memory that tensors of any rank, or a process, held at once."""

    name = "peak-memory"
    produces: ClassVar = {
        "peak_memory_bytes": "Most memory tensors held at once, on the rank that held most",
        "process_peak_memory_bytes": "CPU: largest resident size of a process, all included",
    }
    where = "cpu, cuda, xpu"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The facts of the same names."""
        for name in self.produces:
            if name in seen.facts:
                yield Metric(name=name, value=seen.facts[name], unit="bytes", better="lower")
