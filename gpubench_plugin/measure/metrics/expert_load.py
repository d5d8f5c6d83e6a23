"""How evenly a mixture of experts is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Better, Observation

_METRICS: tuple[tuple[str, str, Better], ...] = (
    ("expert_load", "1", "lower"),
    ("expert_capacity", "count", "none"),
    ("dropped_fraction", "fraction", "lower"),
    ("expert_cache_hit_fraction", "fraction", "higher"),
)


class ExpertLoad(MetricSource):
    """Of several ranks the largest of each: the busiest rank's load, the most that one dropped."""

    name = "expert-load"
    produces: ClassVar = {
        "expert_load": "Rows that the busiest rank computes, over those of an even share",
        "expert_capacity": "Visits of a rank's tokens that an expert takes at most",
        "dropped_fraction": "Visits dropped because an expert was full, on the rank with most",
        "expert_cache_hit_fraction": "Uses of an expert that was on the device already",
    }
    where = "mixture-of-experts layers"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The facts of these names."""
        for name, unit, better in _METRICS:
            if name in seen.facts:
                yield Metric(name=name, value=seen.facts[name], unit=unit, better=better)
