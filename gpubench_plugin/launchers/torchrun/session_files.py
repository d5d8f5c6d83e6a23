"""What a session of pytest's own writes belongs to rank zero's: the others would overwrite it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pytest

_WRITE_CACHE: Final = ("lfplugin", "nfplugin", "stepwiseplugin")


def leave_to_root(config: pytest.Config) -> None:
    """Write no junit file, no cache of failed and of new tests, and no log file any more.

    pytest has opened ``--log-file`` already; what follows does not reach it.
    """
    manager = config.pluginmanager
    for name in _WRITE_CACHE:
        if manager.hasplugin(name):
            manager.unregister(name=name)
    for plugin in manager.get_plugins():
        if type(plugin).__name__ == "LogXML":  # it ends itself, so it must stay registered
            plugin.logfile = os.devnull
    logging = manager.get_plugin("logging-plugin")
    if logging is not None:
        logging.set_log_path(os.devnull)
