"""Computation of all metrics of a benchmark, and checks of their plausibility.

A number that cannot be true is refused, with the reason, instead of being reported.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache

from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import MeasurementError, UsageProblem
from gpubench_plugin.core.format import decimal_rate
from gpubench_plugin.core.records import Metric, Observation
from gpubench_plugin.measure.metrics._peaks import (
    CACHE_FACTOR,
    CACHED_BYTES,
    CORE_BYTES_PER_S,
    CORE_FLOPS_PER_S,
    OPERATIONS_FACTOR,
    plausibility_limits,
)
from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.measure.metrics.throughput import flops_per_device, per_second
from gpubench_plugin.measure.recording import check_durations

_PHASE = "phase_"
"""Beginning of the metrics of a mixture of experts' phases, whose names the model chooses."""


def compute_all(observation: Observation) -> dict[str, Metric]:
    """Every metric that applies to the observation, by name.

    Raises:
        MeasurementError: a time is impossible.
        UsageProblem: two sources compute a metric of the same name.
    """
    check_durations(observation.samples.durations_s)
    metrics: dict[str, Metric] = {}
    for name, source in _sources().items():
        for metric in source(observation):
            if metric.name in metrics:
                raise UsageProblem(f"metrics: {name} computes {metric.name!r}: the name is taken")
            metrics[metric.name] = metric
    return metrics


@cache
def is_built_in(name: str) -> bool:
    """Whether a metric source computes the metric; others were added by a test or a plugin."""
    is_produced = any(name in source.produces for source in _sources().values())
    return is_produced or name.startswith(_PHASE)


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


def check_values(metrics: Mapping[str, Metric], observation: Observation) -> None:
    """Refuse non-finite metrics, rates of no work, and rates above the device's limits.

    Raises:
        MeasurementError: naming the metric, its value and the contradiction.
    """
    for metric in metrics.values():
        if not math.isfinite(metric.value):
            raise MeasurementError(f"{metric.name} is {metric.value}, not a finite number")
        if metric.unit.endswith("/s") and metric.value <= 0:
            raise MeasurementError(
                f"{metric.name} is {metric.value} {metric.unit}: the work of a call is not positive"
            )
    for rate, unit, limit, source in _rate_limits(metrics, observation):
        if rate > limit:
            amount = "FLOPs" if unit == "FLOP/s" else "bytes"
            limit_text = decimal_rate(limit, unit.partition(" ")[0])
            raise MeasurementError(
                f"{decimal_rate(rate, unit)} per device exceeds the maximum of "
                f"{observation.device_name}, {limit_text} ({source}); the {amount} of a call or "
                "the clock are wrong"
            )


def _rate_limits(
    metrics: Mapping[str, Metric], observation: Observation
) -> Iterator[tuple[float, str, float, str]]:
    """Rates per device with unit, limit and its source; none of a CPU with unknown processors."""
    flops = flops_per_device(observation) or 0.0
    bytes_per_s = (
        per_second(observation.work.bytes or 0.0, observation.samples) / observation.world_size
    )
    if observation.device == "cpu":
        if cores := observation.facts.get("processors", 0.0):
            yield flops, "FLOP/s", cores * CORE_FLOPS_PER_S, f"{cores:g} processors"
            yield bytes_per_s, "B/s", cores * CORE_BYTES_PER_S, f"{cores:g} processors"
        return
    limits = plausibility_limits(observation.device_name)
    if "mfu" in metrics and (peak := limits.tflops.get(observation.precision)):
        yield flops, "FLOP/s", peak * 1e12, f"dense {observation.precision} peak, {limits.source}"
    limit = max(limits.tflops.values()) * 1e12 * OPERATIONS_FACTOR
    source = f"{OPERATIONS_FACTOR:g} times the highest dense peak, {limits.source}"
    yield flops, "FLOP/s", limit, source
    fits_cache = (observation.work.bytes or 0.0) / observation.world_size < CACHED_BYTES
    limit = limits.memory * 1e9 * (CACHE_FACTOR if fits_cache else 1.0)
    yield bytes_per_s, "B/s", limit, limits.source
    if "busbw_bytes_per_s" in metrics:
        busbw = metrics["busbw_bytes_per_s"].value
        yield busbw, "B/s between devices", limits.link * 1e9, limits.source
