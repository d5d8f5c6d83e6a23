"""Metric source base class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from gpubench_plugin.core.catalog import Function
from gpubench_plugin.core.records import Better, Metric, Observation

_PREFIXES = {
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
}
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
"""Units of metrics; a fraction is written 0.35, not 35%, and ``1`` means no unit."""

MULTIPLES: Mapping[str, tuple[float, str]] = {
    "ms": (1e-3, "s"),
    "µs": (1e-6, "s"),
    "us": (1e-6, "s"),
    "ns": (1e-9, "s"),
    "mJ": (1e-3, "J"),
    "kJ": (1e3, "J"),
    "kW": (1e3, "W"),
    "GHz": (1e3, "MHz"),
    "GFLOP/s": (1e-3, "TFLOP/s"),
    "PFLOP/s": (1e3, "TFLOP/s"),
    "%": (1e-2, "fraction"),
    **{f"{prefix}B": (size, "bytes") for prefix, size in _PREFIXES.items()},
    **{f"{prefix}B/s": (size, "bytes/s") for prefix, size in _PREFIXES.items()},
}
"""Other units that a benchmark may state: their size in one of :data:`UNITS`, which is recorded.

So two runs that state one metric in different units are compared rightly."""

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
