"""Metrics, computed from observations by one module per source."""

from typing import TYPE_CHECKING

from gpubench_plugin.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.measure.metrics._all import (
        check_values,
        compute_all,
        is_built_in,
        preload,
    )
    from gpubench_plugin.measure.metrics._peaks import DEVICES
    from gpubench_plugin.measure.metrics.base import MULTIPLES, UNITS, MetricSource, metrics
    from gpubench_plugin.measure.metrics.throughput import log_rate_half_width, rate_flags

__getattr__ = lazy_names(__name__)
