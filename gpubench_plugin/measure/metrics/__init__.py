"""Metrics, computed from observations by decorated functions, one module per subject."""

from typing import TYPE_CHECKING

from gpubench_plugin.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.measure.metrics.base import MULTIPLES, UNITS, MetricSource, metrics

__getattr__ = lazy_names(__name__)
