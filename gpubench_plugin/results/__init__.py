"""Where results go: the run directory, its journal and its exports.

Only rank zero writes, and it needs no torch for it. A file appears whole or not at all.
"""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.results.journal import Journal, utc_now
    from gpubench_plugin.results.logical_time import time_after
    from gpubench_plugin.results.outcomes import forget_last, free, is_out_of_memory
    from gpubench_plugin.results.prune import (
        HASHED_BYTES,
        Leftover,
        Removal,
        artifacts,
        foreign_files,
        leftovers,
        older,
        remove,
        remove_leftover,
    )
    from gpubench_plugin.results.pytest_benchmark import (
        BenchmarkFixture,
        Metadata,
        Recorded,
        add_metrics,
        thinned,
    )
    from gpubench_plugin.results.pytest_benchmark_files import SECTION, settings_of, told
    from gpubench_plugin.results.reader import (
        EarlierRun,
        Overview,
        StoredRun,
        is_being_written,
        middle_rounds,
        run_of,
    )
    from gpubench_plugin.results.recorder import Recorder, append, append_events
    from gpubench_plugin.results.resume import reopen
    from gpubench_plugin.results.run_directory import (
        RunDirectory,
        find_run,
        is_path_component,
        new_run_id,
        path_component,
        runs_in,
        under_removal,
    )
    from gpubench_plugin.results.run_list import Filter, latest_runs
    from gpubench_plugin.results.sources import read_run
    from gpubench_plugin.results.summary import (
        table_text,
        write_summary,
    )
    from gpubench_plugin.results.tags import (
        TagChange,
        change_tags,
        from_text,
        tags_in,
        tags_of,
        to_text,
    )

__getattr__ = lazy_names(__name__)
