"""What a run is judged against: baselines turned into the earlier runs that are its samples."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.compare.baselines.document import (
        from_text,
        json_schema,
        schema_text,
        to_text,
    )
    from gpubench_plugin.compare.baselines.last import LastRuns, last_runs
    from gpubench_plugin.compare.baselines.lookup import (
        Found,
        find,
        objections,
        registered,
        the_benchmark,
    )
    from gpubench_plugin.compare.baselines.model import (
        Acceptance,
        Baseline,
        Change,
        baseline_name,
        merged,
        one_of,
        replaced,
        replayed,
    )
    from gpubench_plugin.compare.baselines.near_misses import near_miss
    from gpubench_plugin.compare.baselines.resolve import (
        NamedRun,
        Reference,
        named_run,
        names_a_run,
        reference,
        rested_on,
    )
    from gpubench_plugin.compare.baselines.samples import LaterRuns
    from gpubench_plugin.compare.baselines.store import KIND, Baselines, merge_files
    from gpubench_plugin.compare.baselines.trend import (
        Course,
        LevelChange,
        Past,
        Point,
        change_points,
        courses,
    )

__getattr__ = lazy_names(__name__)
