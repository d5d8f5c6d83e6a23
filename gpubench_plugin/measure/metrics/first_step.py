"""The first step, with all that happens only once."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Observation


class FirstStep(MetricSource):
    """The very first call of the step, before the warm-up."""

    name = "first-step"
    produces: ClassVar = {
        "first_step_s": "The very first call",
    }
    where = "everywhere but adopted tests"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """Seconds until the first step is done, where somebody saw it."""
        value = seen.samples.first_step_s
        if value is not None:
            yield Metric(name="first_step_s", value=value, unit="s", better="lower")
