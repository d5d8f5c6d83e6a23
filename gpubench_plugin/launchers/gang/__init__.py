"""Several ranks driven by one pytest process: started, watched, and one verdict made of them."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.launchers.gang.controller import GangController
    from gpubench_plugin.launchers.gang.gang import Gang
    from gpubench_plugin.launchers.gang.launches import over_launches
    from gpubench_plugin.launchers.gang.processes import Launcher, how_it_ended, keep_flights
    from gpubench_plugin.launchers.gang.protocol import (
        LIMIT_BYTES,
        LONGEST_TEXT,
        Invitation,
        Wire,
        bounded,
        report_from_json,
        report_to_json,
        warning_from_json,
        warning_to_json,
    )
    from gpubench_plugin.launchers.gang.warden import Warden, wait_and_kill
    from gpubench_plugin.launchers.gang.worker import GangRank

__getattr__ = lazy_names(__name__)
