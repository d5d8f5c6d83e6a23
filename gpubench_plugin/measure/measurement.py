"""Construction of a benchmark's record from metrics, custom metrics and plugin hooks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, get_args

from gpubench_plugin.errors import UsageProblem, invalid_choice
from gpubench_plugin.records import Better, Check, Measurement, Metric, Observation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pytest

    from gpubench_plugin.config import Case

FIRST_METHOD: Final = 1
"""That of records which name none: all that were written before methods had numbers."""

MEASURING_METHOD: Final = 1
"""Raised by a change after which the same step would get another number on the same machine.

Such a change is one to the loop, the warm-up, the rule that ends measuring, what stands between two
calls, or the formula of a metric that is judged; a new metric or a faster summary is none. Then
pinned runs are incomparable and baselines are set anew, so it is not raised for less.

1. Warm-up to steady state, then blocks of calls, a decision of the loop between two of them; the
   median and the minimum of all timed calls. How long and how often is a matter of settings.
"""


@dataclass(frozen=True, kw_only=True)
class CustomMetric:
    """A custom metric, or a function that returns its value."""

    name: str
    value: float | Callable[[], float]
    unit: str
    better: Better

    def metric(self) -> Metric:
        """Evaluate the metric.

        Raises:
            UsageProblem: there is no such unit, or no such direction.
        """
        from gpubench_plugin.measure.metrics import UNITS

        where, directions = f"gpubench.record({self.name!r})", get_args(Better)
        if self.unit not in UNITS:
            raise invalid_choice(f"{where}: unit", self.unit, UNITS)
        if self.better not in directions:
            raise invalid_choice(f"{where}: better", self.better, directions)
        value = self.value() if callable(self.value) else self.value
        return Metric(name=self.name, value=float(value), unit=self.unit, better=self.better)


def build_measurement(
    item: pytest.Item,
    case: Case,
    observation: Observation,
    check: Check,
    *,
    custom_metrics: Iterable[CustomMetric] = (),
) -> Measurement:
    """Build the record: all metrics, then plugin changes.

    Raises:
        MeasurementError: the numbers cannot be true.
        UsageProblem: a metric of the benchmark's `custom_metrics` has a name that is taken, or no
            known unit.
    """
    from gpubench_plugin.measure.metrics import check_values, compute_all, rate_flags

    hook = item.ihook
    metrics = compute_all(observation)
    for metric in (own_metric.metric() for own_metric in custom_metrics):
        if metric.name in metrics:
            raise UsageProblem(
                f"{item.nodeid}: gpubench.record({metric.name!r}): the name is taken"
            )
        metrics[metric.name] = metric
    for plugin_metrics in hook.pytest_gpubench_metrics(item=item, observation=observation):
        metrics.update({metric.name: metric for metric in plugin_metrics})
    check_values(metrics, observation)
    samples = observation.samples
    measurement = replace(
        case.unmeasured("measured"),
        timer=samples.timer,
        work=observation.work,
        samples=samples,
        metrics=metrics,
        ranks=observation.ranks,
        flags=samples.flagged(*rate_flags(samples)).flags,
        correctness=check.correctness,
    )
    replacement: Measurement | None = hook.pytest_gpubench_measurement(
        item=item, measurement=measurement
    )
    return replacement or measurement
