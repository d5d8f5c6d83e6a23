"""How far the first training steps are from plain fp32."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Observation


class ErrorAgainstReference(MetricSource):
    """The largest relative errors of the losses and of the gradient norms.

    There to be read: a band judges them, beyond which the benchmark fails.
    """

    name = "reference-error"
    produces: ClassVar = {
        "loss_error": "Largest relative error of the first losses against plain fp32",
        "gradient_norm_error": "The same of the gradients' global norms",
    }
    where = "training with measure.check"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The facts ``loss_error`` and ``gradient_norm_error``."""
        for name in self.produces:
            if name in seen.facts:
                yield Metric(name=name, value=seen.facts[name], unit="1")
