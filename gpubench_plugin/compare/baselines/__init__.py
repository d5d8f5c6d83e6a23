"""Baselines, and the earlier runs that serve as their samples."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.compare.baselines.benchmark_names import (
        ambiguous_benchmark,
        matching_benchmarks,
        run_benchmarks,
        the_benchmark,
        unknown_benchmark,
    )
    from gpubench_plugin.compare.baselines.last import LastResults
    from gpubench_plugin.compare.baselines.model import (
        Acceptance,
        Baseline,
        BaselineChange,
        BaselineFile,
        Reference,
        baseline_name,
        from_text,
        merge,
        previous_baseline,
        replay,
        to_text,
    )
    from gpubench_plugin.compare.baselines.resolve import (
        Resolver,
        directories_of,
        looks_like_run,
    )
    from gpubench_plugin.compare.baselines.samples import LaterRuns, objections
    from gpubench_plugin.compare.baselines.store import KIND, Baselines, merge_files, near_miss
    from gpubench_plugin.compare.baselines.trend import (
        BenchmarkHistory,
        HistorySource,
        LevelChange,
        Point,
        TrendSegment,
        benchmark_history,
        change_points,
        levels_of_median,
        trend_segments,
    )

__getattr__ = lazy_names(__name__)
