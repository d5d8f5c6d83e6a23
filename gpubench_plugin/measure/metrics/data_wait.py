"""Waiting for data."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.metrics._totals import timed_s
from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Observation


class DataWait(MetricSource):
    """How much of the timed blocks the host spent waiting for the next batch."""

    name = "data-wait"
    produces: ClassVar = {
        "data_wait_fraction": "Share of the time in which the host waited for a batch",
    }
    where = "training and inference"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The fact ``data_wait_s`` over the length of all timed blocks."""
        if "data_wait_s" in seen.facts:
            share = seen.facts["data_wait_s"] / timed_s(seen.samples)
            yield Metric(name="data_wait_fraction", value=share, unit="fraction", better="lower")
