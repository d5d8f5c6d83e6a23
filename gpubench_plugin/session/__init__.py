"""One pytest session with benchmarks: its start, its recording, its gate."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.session.recording import Recording, status_of
    from gpubench_plugin.session.run import OpenRun
    from gpubench_plugin.session.start import start_session

__getattr__ = lazy_names(__name__)
