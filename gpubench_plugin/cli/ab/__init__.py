"""``gpubench ab``: measure base and head alternately in fresh processes, judge by pairs."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.cli.ab.comparison import (
        VERDICTS,
        ComparisonResult,
        compare,
        load_state,
        new_state,
        next_command,
        rendered,
        resume_command,
        write_files,
    )
    from gpubench_plugin.cli.ab.disturbance import (
        Attempt,
        disturbance_cause,
        disturbance_notes,
        is_disturbed,
        may_hide_slow_launches,
        pair_to_remeasure,
    )
    from gpubench_plugin.cli.ab.findings import Tracker, next_pairs
    from gpubench_plugin.cli.ab.git import Repository, receives_own_output, remove_worktrees
    from gpubench_plugin.cli.ab.launch import LaunchOutcome, LaunchSpec, PytestLauncher
    from gpubench_plugin.cli.ab.preflight import Capabilities, features, imports, require_own_code
    from gpubench_plugin.cli.ab.progress import LaunchStatus, Progress
    from gpubench_plugin.cli.ab.request import (
        Request,
        check_pairs,
        check_unchanged_from,
        merge_resumed,
        parse_arguments,
        parse_duration,
    )
    from gpubench_plugin.cli.ab.schedule import (
        WARMUP_PAIR,
        estimate_remaining_s,
        freeze,
        side_order,
    )
    from gpubench_plugin.cli.ab.sides import (
        SIDES,
        Side,
        SideName,
        Source,
        prepare_side,
        resolve_source,
    )
    from gpubench_plugin.cli.ab.state import STATE, LaunchRecord, Look, State
    from gpubench_plugin.cli.ab.trial import ComparisonRunner, PreparedSide
    from gpubench_plugin.cli.ab.workspaces import Workspace, temporary_workspace

__getattr__ = lazy_names(__name__)
