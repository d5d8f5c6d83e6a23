"""Metric source base class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from gpubench_plugin.catalog import Function
from gpubench_plugin.records import Better, Metric, Observation

UNITS = (
    "s",
    "J",
    "J/sample",
    "W",
    "samples/s",
    "tokens/s",
    "bytes/s",
    "TFLOP/s",
    "MHz",
    "°C",
    "bytes",
    "fraction",
    "iterations/s",
    "count",
    "1",
)
"""Units of metrics; a fraction is written 0.35, not 35 %, and ``1`` means no unit."""

Compute = Callable[[Observation], Iterable[Metric]]
"""Function of an observation that returns the metrics that apply to it."""


class MetricSource(Function[[Observation], Iterable[Metric]]):
    """Function that computes related metrics, and their meanings."""

    decorator = "gpubench_plugin.measure.metrics.metrics"

    def __init__(self, compute: Compute, *, where: str, produces: Mapping[str, str]):
        super().__init__(compute)
        self.where = where
        self.produces = produces


BASE = MetricSource


def metrics(where: str = "everywhere", /, **produces: str) -> Callable[[Compute], MetricSource]:
    """Decorator of a function that computes metrics from an observation.

    `where` tells where they apply, `produces` maps the name of each to its meaning in a line.
    """
    return partial(MetricSource, where=where, produces=produces)


def fact(
    observation: Observation, name: str, unit: str, better: Better = "none"
) -> Iterator[Metric]:
    """Metric of the fact `name`, if the observation has it."""
    if name in observation.facts:
        yield Metric(name=name, value=observation.facts[name], unit=unit, better=better)
