"""The loss of the untimed check."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Observation


class Loss(MetricSource):
    """The loss at the first and at the last step of the check, all on one batch."""

    name = "loss"
    produces: ClassVar = {
        "loss_first": "Loss at the first step of the untimed check",
        "loss_last": "Loss at its last step",
    }
    where = "training"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The facts ``loss_first`` and ``loss_last``."""
        if "loss_first" in seen.facts:
            yield Metric(name="loss_first", value=seen.facts["loss_first"], unit="1")
        if "loss_last" in seen.facts:
            value = seen.facts["loss_last"]
            yield Metric(name="loss_last", value=value, unit="1", better="lower")
