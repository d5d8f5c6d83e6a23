"""Communication that no computation hides."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Observation


class ExposedCommunication(MetricSource):
    """What the exchange of gradients adds to a step; noise can make a small one negative."""

    name = "exposed-communication"
    produces: ClassVar = {
        "exposed_communication_s": "What the exchange of gradients adds to the median step",
    }
    where = "benchmarks of the fixture exposed_communication"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The difference of the slowest ranks' medians, where both kinds of steps were timed."""
        if {"step_exchanging_s", "step_alone_s"} <= seen.facts.keys():
            exposed = seen.facts["step_exchanging_s"] - seen.facts["step_alone_s"]
            yield Metric(name="exposed_communication_s", value=exposed, unit="s", better="lower")
