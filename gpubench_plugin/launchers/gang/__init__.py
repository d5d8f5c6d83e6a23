"""Gangs: worker processes, one per rank, driven by one pytest process."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.launchers.gang.controller import GangController
    from gpubench_plugin.launchers.gang.gang import Gang
    from gpubench_plugin.launchers.gang.merged_launches import merge_launches
    from gpubench_plugin.launchers.gang.orphan_reaper import OrphanReaper, wait_and_kill
    from gpubench_plugin.launchers.gang.processes import (
        GangLauncher,
        exit_code_text,
        save_flights,
        write_to_pipe,
    )
    from gpubench_plugin.launchers.gang.protocol import JoinInfo, Link
    from gpubench_plugin.launchers.gang.worker import GangRank

__getattr__ = lazy_names(__name__)
