"""What it took to reach the steady state."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Observation


class Warmup(MetricSource):
    """The calls between the first step and the first timed one."""

    name = "warmup"
    produces: ClassVar = {
        "warmup_s": "Time of the calls between the first and the first timed one",
        "warmup_iterations": "Number of those calls",
    }
    where = "everywhere but adopted tests"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """Their time and their number, where somebody saw them."""
        if seen.samples.first_step_s is None:
            return
        yield Metric(name="warmup_s", value=fsum(seen.samples.warmup_s), unit="s")
        calls = float(seen.samples.warmup_calls)
        yield Metric(name="warmup_iterations", value=calls, unit="count")
