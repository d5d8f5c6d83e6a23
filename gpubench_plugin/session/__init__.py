"""One pytest session with benchmarks: its mode, its recording, its gate."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.session.modes import Roles
    from gpubench_plugin.session.recording import Session, status_of
    from gpubench_plugin.session.run import OpenRun

__getattr__ = lazy_names(__name__)
