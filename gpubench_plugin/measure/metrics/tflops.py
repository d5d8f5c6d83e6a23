"""Floating-point operations per second."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.metrics._flops import flops_per_device
from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Observation


class Tflops(MetricSource):
    """The counted operations over the total time, per device."""

    name = "tflops"
    produces: ClassVar = {
        "tflops": "Counted operations per second and device",
    }
    where = "where operations are counted or stated"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """TFLOP/s per device, where operations were counted."""
        rate = flops_per_device(seen)
        if rate is not None:
            yield Metric(name="tflops", value=rate / 1e12, unit="TFLOP/s", better="higher")
