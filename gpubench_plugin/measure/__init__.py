"""Measuring: the loop, its rules, the clocks, and the probes beside them."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.measure.interval import (
        FEWEST_TO_JUDGE,
        Dependence,
        interval_ranks,
        median_interval,
    )
    from gpubench_plugin.measure.loop import measure
    from gpubench_plugin.measure.measurement import (
        FIRST_METHOD,
        MEASURING_METHOD,
        OwnMetric,
        measurement_of,
    )
    from gpubench_plugin.measure.outliers import has_outliers
    from gpubench_plugin.measure.plan import Pace, Plan, Planner, fitting_rounds
    from gpubench_plugin.measure.protocols import Log, Part, Subject
    from gpubench_plugin.measure.ratio import time_ratio
    from gpubench_plugin.measure.recording import Recording, round_medians
    from gpubench_plugin.measure.sketch import LEAST_RANK_ERROR, Sketcher, size_for
    from gpubench_plugin.measure.state import preserved, return_free_memory
    from gpubench_plugin.measure.stopping import Looks, rule_for
    from gpubench_plugin.measure.student import t_quantile
    from gpubench_plugin.measure.tracers import Tracers
    from gpubench_plugin.measure.trend import is_trending
    from gpubench_plugin.measure.warmup import WarmUp, warm_up

__getattr__ = lazy_names(__name__)
