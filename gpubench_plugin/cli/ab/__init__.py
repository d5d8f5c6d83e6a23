"""``gpubench ab``: base and head measured in turns by fresh processes, and judged pair by pair."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.cli.ab.comparison import (
        VERDICTS,
        Compared,
        advice,
        compare,
        earlier_state,
        new_state,
        rendered,
        resume_command,
        write_files,
    )
    from gpubench_plugin.cli.ab.disturbance import (
        Attempt,
        cause,
        disturbance_notes,
        is_disturbed,
        may_hide,
        to_repeat,
    )
    from gpubench_plugin.cli.ab.findings import Findings, next_pairs
    from gpubench_plugin.cli.ab.git import Repository, own_output, unregister
    from gpubench_plugin.cli.ab.launch import Launched, Launcher, Order
    from gpubench_plugin.cli.ab.preflight import Offers, imported, offers, require_own_code
    from gpubench_plugin.cli.ab.progress import Progress, Turn, duration
    from gpubench_plugin.cli.ab.request import (
        Asked,
        arguments_from,
        check_pairs,
        check_unchanged_from,
        resumed,
        time_from,
    )
    from gpubench_plugin.cli.ab.schedule import REHEARSAL, freeze, longest_left, order
    from gpubench_plugin.cli.ab.sides import SIDES, Side, SideName, Source, side, source
    from gpubench_plugin.cli.ab.state import STATE, Done, Look, State
    from gpubench_plugin.cli.ab.trial import Contender, Trial
    from gpubench_plugin.cli.ab.workspaces import Workspace, workspace

__getattr__ = lazy_names(__name__)
