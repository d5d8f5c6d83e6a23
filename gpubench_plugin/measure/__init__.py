"""Measuring: the loop, stopping rules, clocks, and probes."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.measure.interval import (
        FEWEST_TO_JUDGE,
        Autocorrelation,
        interval_ranks,
        median_interval,
    )
    from gpubench_plugin.measure.loop import measure
    from gpubench_plugin.measure.outliers import has_outliers
    from gpubench_plugin.measure.paired_turns import (
        SpeedUp,
        paired_speed_up,
        speed_up_metric,
        speed_ups,
        turns_s,
        variant_facts,
        variant_metrics,
        variant_rounds,
        variant_step_time,
    )
    from gpubench_plugin.measure.plan import Pace, Plan, Planner, remaining_rounds
    from gpubench_plugin.measure.progress import Progress
    from gpubench_plugin.measure.protocols import Checkable, Log, Subject
    from gpubench_plugin.measure.record_builder import (
        FIRST_METHOD,
        MEASURING_METHOD,
        CustomMetric,
        build_measurement,
    )
    from gpubench_plugin.measure.recording import Recording
    from gpubench_plugin.measure.sketch import LEAST_RANK_ERROR, Sketcher, size_for
    from gpubench_plugin.measure.state import release_memory, state_restored
    from gpubench_plugin.measure.step_ratio import time_ratio
    from gpubench_plugin.measure.stopping import CheckSchedule, make_rule
    from gpubench_plugin.measure.student import t_quantile
    from gpubench_plugin.measure.throttle import longest_wait_s, wait_while_throttled
    from gpubench_plugin.measure.tracers import Tracers
    from gpubench_plugin.measure.trend import is_trending
    from gpubench_plugin.measure.turns import FEWEST_TURNS, Variant, measure_in_turns, naming
    from gpubench_plugin.measure.warmup import WarmUp, warm_up

__getattr__ = lazy_names(__name__)
