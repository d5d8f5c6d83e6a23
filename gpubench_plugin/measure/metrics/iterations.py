"""How fast a model of diffusion goes through its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.metrics._totals import per_second
from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Observation


class Iterations(MetricSource):
    """Denoising steps over total time, each of a whole batch."""

    name = "iterations"
    produces: ClassVar = {
        "iterations_per_s": "Denoising steps over the length of all blocks",
    }
    where = "inference of denoising networks"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The fact ``iterations_per_call`` as a rate."""
        if "iterations_per_call" in seen.facts:
            rate = per_second(seen.facts["iterations_per_call"], seen.samples)
            yield Metric(name="iterations_per_s", value=rate, unit="iterations/s", better="higher")
