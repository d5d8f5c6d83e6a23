"""Steps that changed no weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Observation


class SkippedSteps(MetricSource):
    """Timed steps that the gradient scaler skipped since a gradient was not finite."""

    name = "skipped-steps"
    produces: ClassVar = {
        "skipped_steps": "Timed steps that the gradient scaler skipped",
    }
    where = "training"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The fact ``skipped_steps``."""
        if "skipped_steps" in seen.facts:
            value = seen.facts["skipped_steps"]
            yield Metric(name="skipped_steps", value=value, unit="count", better="lower")
