"""The time that compilation takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.metrics._medians import median_step_s
from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Observation


class Compilation(MetricSource):
    """What the first step of a compiled model takes beyond a steady one.

    It includes whatever else happens only once, such as the choice of kernels. A first step no
    longer than a steady one, compiled by an earlier call, has no compile time.
    """

    name = "compile-time"
    produces: ClassVar = {
        "compile_time_s": "First call less a steady one",
    }
    where = "compiled models"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """First step minus median step, where the fact ``compiled`` is set."""
        first_s = seen.samples.first_step_s
        if first_s is None or not seen.facts.get("compiled"):
            return
        extra_s = first_s - median_step_s(seen.samples)
        if extra_s > 0:
            yield Metric(name="compile_time_s", value=extra_s, unit="s", better="lower")
