"""What a run is judged against: baselines turned into the earlier runs that are its samples."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.compare.baselines.model import (
        Acceptance,
        Baseline,
        BaselineFile,
        Change,
        Reference,
        baseline_name,
        from_text,
        merged,
        replaced,
        replayed,
        to_text,
    )
    from gpubench_plugin.compare.baselines.resolve import (
        Resolver,
        directories_of,
        names_a_run,
        the_benchmark,
    )
    from gpubench_plugin.compare.baselines.samples import LaterRuns, objections
    from gpubench_plugin.compare.baselines.store import KIND, Baselines, merge_files, near_miss
    from gpubench_plugin.compare.baselines.trend import (
        Course,
        LevelChange,
        Past,
        Point,
        change_points,
        courses,
    )

__getattr__ = lazy_names(__name__)
