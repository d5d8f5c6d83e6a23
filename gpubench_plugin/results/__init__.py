"""Results: run directories, journals and exports.

Only rank zero writes, and it needs no torch for it. A file appears whole or not at all.
"""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.results.csv_table import table_problems, table_schema, table_text
    from gpubench_plugin.results.curves import Curve, benchmark_events, curves_of
    from gpubench_plugin.results.journal import Journal, JournalTail, as_json, utc_now
    from gpubench_plugin.results.live import LiveBenchmark, LiveRun
    from gpubench_plugin.results.logical_time import time_after
    from gpubench_plugin.results.outcomes import (
        clear_last_exception,
        crash_reason,
        outcome_of,
        release_frames,
    )
    from gpubench_plugin.results.prune import (
        HASHED_BYTES,
        Leftover,
        PruneTarget,
        artifacts,
        leftovers,
        remove,
        remove_leftover,
        select_old,
        unknown_files,
    )
    from gpubench_plugin.results.pytest_benchmark import (
        BenchmarkFixture,
        Metadata,
        PytestBenchmarkTiming,
        add_metrics,
        subsample,
    )
    from gpubench_plugin.results.pytest_benchmark_files import (
        SECTION,
        relevant_options,
        settings_of,
    )
    from gpubench_plugin.results.reader import (
        ResumableRun,
        RunOverview,
        StoredRun,
        is_being_written,
        median_rounds,
        run_of,
    )
    from gpubench_plugin.results.recorder import Recorder, append, append_events
    from gpubench_plugin.results.resume_checks import open_to_resume
    from gpubench_plugin.results.run_directory import (
        RunDirectory,
        find_run,
        is_path_component,
        names_latest,
        new_run_id,
        path_component,
        removal_name,
        runs_in,
    )
    from gpubench_plugin.results.run_list import RunFilter, latest_runs
    from gpubench_plugin.results.sources import load_run
    from gpubench_plugin.results.summary import write_summary
    from gpubench_plugin.results.tags import (
        TagChange,
        change_tags,
        current_tags,
        from_text,
        tags_of,
        to_text,
    )
    from gpubench_plugin.results.verdicts import VerdictDocument

__getattr__ = lazy_names(__name__)
