"""Several ranks driven by one pytest process: started, watched, and one verdict made of them."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.launchers.gang.controller import GangController
    from gpubench_plugin.launchers.gang.gang import Gang
    from gpubench_plugin.launchers.gang.launches import over_launches
    from gpubench_plugin.launchers.gang.processes import Launcher, how_it_ended, keep_flights
    from gpubench_plugin.launchers.gang.protocol import Invitation, Wire
    from gpubench_plugin.launchers.gang.warden import Warden, wait_and_kill
    from gpubench_plugin.launchers.gang.worker import GangRank

__getattr__ = lazy_names(__name__)
