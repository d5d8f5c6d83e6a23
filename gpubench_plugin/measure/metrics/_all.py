"""Computation of all metrics of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.records import Metric, Observation
from gpubench_plugin.measure.metrics._plausibility import check_times, check_values
from gpubench_plugin.measure.metrics.base import MetricSource

_PHASE = "phase_"
"""Beginning of the metrics of a mixture of experts' phases, whose names the model chooses."""


def compute_all(observation: Observation) -> dict[str, Metric]:
    """Every metric that applies to the observation, by name.

    Raises:
        MeasurementError: a time or a metric is impossible.
        UsageProblem: two sources compute a metric of the same name.
    """
    check_times(observation)
    metrics: dict[str, Metric] = {}
    for name, source in _sources().items():
        for metric in source(observation):
            if metric.name in metrics:
                raise UsageProblem(f"metrics: {name} computes {metric.name!r}: the name is taken")
            metrics[metric.name] = metric
    check_values(metrics, observation)
    return metrics


def is_built_in(name: str) -> bool:
    """Whether a metric source computes the metric; others were added by a test or a plugin."""
    return name in _built_in_names() or name.startswith(_PHASE)


@cache
def _built_in_names() -> frozenset[str]:
    return frozenset(name for source in _sources().values() for name in source.produces)


def preload() -> None:
    """Import everything needed to compute metrics."""
    import numpy as np

    np.quantile((1.0, 2.0), 0.5)
    np.fft.rfft((1.0, 2.0))
    _sources()


@cache
def _sources() -> Mapping[str, MetricSource]:
    """All metric sources; the lookup searches installed distributions."""
    return {name: catalog.load("metrics", name) for name in catalog.choices("metrics")}
