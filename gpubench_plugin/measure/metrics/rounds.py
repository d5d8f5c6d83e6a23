"""The size of the sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Observation


class Rounds(MetricSource):
    """How many rounds the median and its interval rest on."""

    name = "rounds"
    produces: ClassVar = {
        "rounds": "Whole rounds that were timed",
    }

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The number of whole rounds."""
        yield Metric(name="rounds", value=float(seen.samples.rounds), unit="count")
