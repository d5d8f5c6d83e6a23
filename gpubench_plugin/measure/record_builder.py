"""Construction of a benchmark's record from metrics, custom metrics and plugin hooks."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, get_args

from gpubench_plugin.core.errors import Misuse, invalid_choice
from gpubench_plugin.core.hookspecs import wrong_result
from gpubench_plugin.core.records import Better, Check, Measurement, Metric, Observation

if TYPE_CHECKING:
    import pytest

    from gpubench_plugin.config.case import Case

MEASURING_METHOD: Final = 1
"""Number of the method, raised by changes after which the same step would get other numbers.

Such are changes of the loop, the warm-up, the stopping rule, the code between two calls, or the
formula of a judged metric, not a new metric. They make pinned runs incomparable.

1. Warm-up to steady state, then blocks of calls with a decision between two of them; the median and
   the minimum of all timed calls.
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
            Misuse: the unit or the direction is unknown, or the value is no number.
        """
        from gpubench_plugin.measure.metrics.base import MULTIPLES, UNITS

        where, directions = f"gpubench.record({self.name!r})", get_args(Better)
        size, unit = MULTIPLES.get(str(self.unit), (1.0, self.unit))
        if unit not in UNITS:
            allowed = [*UNITS, *MULTIPLES]
            raise Misuse(str(invalid_choice(f"{where}: unit", str(self.unit), allowed)))
        if self.better not in directions:
            raise Misuse(str(invalid_choice(f"{where}: better", str(self.better), directions)))
        value = self.value() if callable(self.value) else self.value
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number * size):
            raise Misuse(
                f"{where}: value={reprlib.repr(value)}; allowed: a finite number, or a function "
                "that returns one"
            )
        return Metric(name=self.name, value=number * size, unit=unit, better=self.better)


def build_measurement(
    item: pytest.Item,
    case: Case,
    observation: Observation,
    check: Check,
    *,
    custom_metrics: Iterable[CustomMetric] = (),
) -> Measurement:
    """Build the record: built-in, custom and plugin metrics, then replacements by plugins.

    Raises:
        MeasurementError: a number is impossible.
        Misuse: the name of a custom metric is taken, or its unit unknown; or a hook returned
            something else than it may.
    """
    from gpubench_plugin.measure.metrics._all import check_values, compute_all
    from gpubench_plugin.measure.metrics.throughput import rate_flags

    metrics = compute_all(observation)
    for metric in (custom.metric() for custom in custom_metrics):
        if metric.name in metrics:
            raise Misuse(f"gpubench.record({metric.name!r}): the name is taken; choose another")
        metrics[metric.name] = metric
    metrics |= _plugin_metrics(item, observation)
    check_values(metrics, observation)
    samples = observation.samples
    measurement = replace(
        case.unmeasured("measured"),
        timer=samples.timer,
        work=observation.work,
        samples=samples,
        metrics=metrics,
        ranks=observation.ranks,
        machine=observation.machine,
        flags=samples.flagged(*rate_flags(samples)).flags,
        correctness=check.correctness,
    )
    hook = item.ihook.pytest_gpubench_measurement
    replacement = hook(item=item, measurement=measurement)
    if not isinstance(replacement, Measurement | None):
        raise wrong_result(hook, replacement, expected="a Measurement, or None")
    return replacement or measurement


def _plugin_metrics(item: pytest.Item, observation: Observation) -> dict[str, Metric]:
    """Metrics of the hook's implementations by name."""
    hook = item.ihook.pytest_gpubench_metrics
    metrics: dict[str, Metric] = {}
    for result in hook(item=item, observation=observation):
        for metric in result if isinstance(result, Iterable) else [result]:
            is_metric = isinstance(metric, Metric) and isinstance(metric.name, str)
            if not is_metric or not isinstance(metric.value, int | float):
                expected = "a list of Metrics, each with a name and a number, or None"
                raise wrong_result(hook, metric, expected=expected)
            metrics[metric.name] = metric
    return metrics
