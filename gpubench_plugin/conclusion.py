"""From what was observed of a benchmark to its record."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from gpubench_plugin.cases import Case
    from gpubench_plugin.records import Check, Measurement, Observation


def concluded(item: pytest.Item, case: Case, observation: Observation, check: Check) -> Measurement:
    """The record of what was observed: all metrics, and what other plugins make of it.

    Raises:
        MeasurementError: the numbers cannot be true.
    """
    from gpubench_plugin.metrics._all import compute_all
    from gpubench_plugin.metrics._plausibility import check_values

    hook = item.ihook
    metrics = compute_all(observation)
    for more in hook.pytest_gpubench_metrics(item=item, observation=observation):
        metrics.update({metric.name: metric for metric in more})
    check_values(metrics, observation)
    measurement = replace(
        case.record("measured"),
        timer=observation.samples.timer,
        samples=observation.samples,
        metrics=metrics,
        ranks=observation.ranks,
        flags=observation.samples.flags,
        correctness=check.correctness,
    )
    changed: Measurement | None = hook.pytest_gpubench_measurement(
        item=item, measurement=measurement
    )
    return changed or measurement
