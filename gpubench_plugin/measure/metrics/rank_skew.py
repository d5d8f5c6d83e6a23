"""How unevenly the ranks run."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Observation


class RankSkew(MetricSource):
    """The difference between the slowest and the fastest rank."""

    name = "rank-skew"
    produces: ClassVar = {
        "rank_skew_s": "Slowest rank's median less the fastest rank's",
    }
    where = "2 ranks or more"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The range of the ranks' median rounds, where there are several ranks."""
        if len(seen.ranks) > 1:
            medians = [rank.median_s for rank in seen.ranks]
            skew_s = max(medians) - min(medians)
            yield Metric(name="rank_skew_s", value=skew_s, unit="s", better="lower")
