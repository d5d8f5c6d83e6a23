"""How long training takes to reach its target, and how good the model then is."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from gpubench_plugin.measure.metrics._medians import median_step_s
from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpubench_plugin.records import Better, Observation

_FACTS: Final[Mapping[str, tuple[str, Better]]] = {
    "steps_to_target": ("count", "lower"),
    "epochs_to_target": ("count", "lower"),
    "test_loss": ("1", "lower"),
    "test_accuracy": ("fraction", "higher"),
    "parity_error": ("fraction", "lower"),
}


class Convergence(MetricSource):
    """Of a convergence benchmark, of which every timed call is one training to the target.

    What is evaluated on held-out samples is there of every training that is.
    """

    name = "convergence"
    produces: ClassVar = {
        "time_to_target_s": "Median training from the start to the target",
        "steps_to_target": "Optimizer steps of that training",
        "epochs_to_target": "The same in passes over the data",
        "test_loss": "Mean loss on held-out samples after training",
        "test_accuracy": "Share of held-out samples in the right class then",
        "parity_error": "Relative difference of that loss from fp32's",
    }
    where = "convergence; after training with training.evaluate"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The median training, and the facts there are."""
        if "steps_to_target" in seen.facts:
            duration_s = median_step_s(seen.samples)
            yield Metric(name="time_to_target_s", value=duration_s, unit="s", better="lower")
        for name, (unit, better) in _FACTS.items():
            if name in seen.facts:
                yield Metric(name=name, value=seen.facts[name], unit=unit, better=better)
