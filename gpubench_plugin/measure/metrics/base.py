"""What computes metrics from an observation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpubench_plugin.records import Metric, Observation

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


class MetricSource(ABC):
    """Computes one metric, or a few that belong together, from an observation alone."""

    name: ClassVar[str]
    """Its own name, in small letters with ``-``."""
    produces: ClassVar[Mapping[str, str]]
    """The names of the metrics it may compute, each with its meaning in a line."""

    where: ClassVar[str] = "everywhere"
    """Where there is something to compute."""

    @abstractmethod
    def compute(self, seen: Observation) -> Iterable[Metric]:
        """The metrics that apply to what was `seen`; none where what they need was not seen."""


BASE = MetricSource
