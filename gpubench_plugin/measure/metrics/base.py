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
    "bytes",
    "fraction",
    "iterations/s",
    "count",
    "1",
)
"""The units a metric may have; a fraction is written 0.35, not 35 %, and ``1`` is no unit."""

Compute = Callable[[Observation], Iterable[Metric]]
"""Computes the metrics that apply to an observation; none where what they need is missing."""


class MetricSource(Function[[Observation], Iterable[Metric]]):
    """A function that computes one metric, or a few that belong together, and what they mean."""

    decorator = "gpubench_plugin.measure.metrics.metrics"

    def __init__(self, compute: Compute, *, where: str, produces: Mapping[str, str]):
        super().__init__(compute)
        self.where = where
        self.produces = produces


BASE = MetricSource


def metrics(where: str = "everywhere", /, **produces: str) -> Callable[[Compute], MetricSource]:
    """The decorator of a function that computes metrics from an observation alone.

    `where` says where there is something to compute, `produces` has the names of the metrics that
    it may compute, each with its meaning in a line.
    """
    return partial(MetricSource, where=where, produces=produces)


def fact(
    observation: Observation, name: str, unit: str, better: Better = "none"
) -> Iterator[Metric]:
    """The fact `name` as a metric, where the observation has it."""
    if name in observation.facts:
        yield Metric(name=name, value=observation.facts[name], unit=unit, better=better)
