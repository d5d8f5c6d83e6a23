"""What a pipeline of ranks gains over one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.metrics._medians import median_step_s
from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Observation


class Pipeline(MetricSource):
    """The speed-up over one process, beside the one that filling the pipeline leaves.

    M samples through w ranks of equal parts gain M·w/(M + w - 1) at best, as for the
    micro-batches of Huang et al. 2018 (https://arxiv.org/abs/1811.06965), section 2.3.
    """

    name = "pipeline"
    produces: ClassVar = {
        "one_process_s": "Time of one process for what the pipeline does, measured beside it",
        "speed_up": "That time over the pipeline's median",
        "ideal_speed_up": "The speed-up where sending takes no time: M·w/(M + w - 1)",
        "pipeline_efficiency": "The speed-up over the ideal one",
    }
    where = "pipelines of 2 ranks or more"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """From the facts ``one_process_s`` and ``ideal_speed_up``, where there are both."""
        alone_s, ideal = seen.facts.get("one_process_s"), seen.facts.get("ideal_speed_up")
        if not alone_s or not ideal:
            return
        speed_up = alone_s / median_step_s(seen.samples)
        yield Metric(name="one_process_s", value=alone_s, unit="s")
        yield Metric(name="speed_up", value=speed_up, unit="1", better="higher")
        yield Metric(name="ideal_speed_up", value=ideal, unit="1")
        value = speed_up / ideal
        yield Metric(name="pipeline_efficiency", value=value, unit="fraction", better="higher")
