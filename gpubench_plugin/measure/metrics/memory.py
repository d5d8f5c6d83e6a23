"""Memory on the device, and of the process."""

from __future__ import annotations

from collections.abc import Iterator

from gpubench_plugin.measure.metrics.base import fact, metrics
from gpubench_plugin.records import Metric, Observation


@metrics(
    "cpu, cuda, xpu",
    peak_memory_bytes="Most memory tensors held at once, on the rank that held most",
    process_peak_memory_bytes="CPU: largest resident size of a process, all included",
)
def peak_memory(observation: Observation) -> Iterator[Metric]:
    """The most memory that tensors of any rank, or a process, held at once."""
    yield from fact(observation, "peak_memory_bytes", "bytes", "lower")
    yield from fact(observation, "process_peak_memory_bytes", "bytes", "lower")
