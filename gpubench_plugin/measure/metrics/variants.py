"""Metrics of variants that are compared in one benchmark."""

from __future__ import annotations

from collections.abc import Iterator

from gpubench_plugin.core.records import Better, Metric, Observation, confidence_bounds_of
from gpubench_plugin.measure.metrics.base import metrics

_VARIANT, _SPEED_UP = "variant_", "speed_up"


@metrics(
    "gpubench.compare",
    needs="variant_",
    variant_eager_step_time_s="Median of the rounds of a variant, here eager",
    variant_eager_step_time_ci_low_s="Lower end of that median's confidence interval",
    variant_eager_step_time_ci_high_s="Upper end of that median's confidence interval",
    variant_eager_rounds="Complete rounds timed of the variant",
    speed_up_compiled="Speed-up of a variant, here compiled, over the first; speed_up of two",
    speed_up_compiled_ci_low="Lower end of that speed-up's confidence interval",
    speed_up_compiled_ci_high="Upper end of that speed-up's confidence interval",
)
def variants(observation: Observation) -> Iterator[Metric]:
    """Step time of each variant, and its speed-up over the first, by neighbouring turns."""
    facts = observation.facts
    bounds = {bound for name in facts for bound in confidence_bounds_of(name)}
    better: Better
    for name, value in facts.items():
        if name.startswith(_SPEED_UP):
            better = "none" if name in bounds else "higher"
            yield Metric(name=name, value=value, unit="1", better=better)
        elif name.startswith(_VARIANT):
            is_time = name.endswith("_s")
            better = "lower" if is_time and name not in bounds else "none"
            yield Metric(name=name, value=value, unit="s" if is_time else "count", better=better)
