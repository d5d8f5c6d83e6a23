"""Metrics: numbers computed from what was observed; one module per source of metrics."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.measure.metrics._all import compute_all, prepare
    from gpubench_plugin.measure.metrics._peaks import DEVICES
    from gpubench_plugin.measure.metrics._plausibility import check_times, check_values
    from gpubench_plugin.measure.metrics._rates import contradiction, deviation_of_rate
    from gpubench_plugin.measure.metrics.base import UNITS, MetricSource, metrics

__getattr__ = lazy_names(__name__)
