"""Metric source base class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, update_wrapper
from typing import NamedTuple

from gpubench_plugin.core.catalog import Function
from gpubench_plugin.core.records import Better, Metric, Observation

_PREFIXES = {
    **{prefix: 1000.0**power for power, prefix in enumerate("kMGT", start=1)},
    **{f"{prefix}i": 1024.0**power for power, prefix in enumerate("KMGT", start=1)},
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


class Fact(NamedTuple):
    """Metric that is a fact of observations by the same name."""

    meaning: str
    unit: str
    better: Better = "none"


class MetricSource(Function[[Observation], Iterable[Metric]]):
    """Function that computes related metrics, and their meanings.

    It applies to observations with a fact whose name begins with `needs`, if that is not empty.
    """

    decorator = "gpubench_plugin.measure.metrics.metrics"

    def __init__(
        self, compute: Compute, *, where: str, produces: Mapping[str, str], needs: str = ""
    ):
        super().__init__(compute)
        self.where = where
        self.produces = produces
        self._needs = needs

    def __call__(self, observation: Observation) -> Iterable[Metric]:
        """Metrics of the `observation`, none if it lacks what they are computed from."""
        if self._needs and not any(name.startswith(self._needs) for name in observation.facts):
            return ()
        return super().__call__(observation)


BASE = MetricSource


def metrics(
    where: str = "everywhere", /, *, needs: str = "", **produces: str
) -> Callable[[Compute], MetricSource]:
    """Decorator of a function that computes metrics from an observation.

    `where` tells where they apply, `produces` maps the name of each to its meaning in a line. The
    function is called for observations with a fact whose name begins with `needs`.
    """
    return partial(MetricSource, where=where, produces=produces, needs=needs)


def facts(where: str, /, **metrics: Fact) -> Callable[[Callable[[], None]], MetricSource]:
    """Decorator of an empty function: its `metrics` are facts of the observation by name."""

    def compute(observation: Observation) -> Iterator[Metric]:
        for metric, (_, unit, better) in metrics.items():
            if metric in observation.facts:
                value = observation.facts[metric]
                yield Metric(name=metric, value=value, unit=unit, better=better)

    meanings = {metric: fact.meaning for metric, fact in metrics.items()}
    return lambda function: MetricSource(
        update_wrapper(compute, function), where=where, produces=meanings
    )
