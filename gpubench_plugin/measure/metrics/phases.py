"""The phases of what is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Observation

_PREFIX, _SUFFIX = "phase_", "_s"


class Phases(MetricSource):
    """How long each phase of a forward pass takes, and its share of all of them.

    They are timed one by one in calls of their own: their sum is not the step's time. Of several
    ranks each is the mean, so that a share is one of the time that all ranks spend.
    """

    name = "phases"
    produces: ClassVar = {
        "phase_experts_s": "Forward time of a phase, here experts; each has its phase_<name>_s",
        "phase_experts_share": "That over the sum of all phases; each has its phase_<name>_share",
    }
    where = "mixture-of-experts layers"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The facts ``phase_<name>_s``, each also as a fraction of their sum."""
        times = {
            name.removeprefix(_PREFIX).removesuffix(_SUFFIX): seconds
            for name, seconds in seen.facts.items()
            if name.startswith(_PREFIX) and name.endswith(_SUFFIX)
        }
        total = sum(times.values())
        for name, seconds in times.items():
            yield Metric(name=f"phase_{name}_s", value=seconds, unit="s", better="lower")
            if total > 0:
                yield Metric(name=f"phase_{name}_share", value=seconds / total, unit="fraction")
