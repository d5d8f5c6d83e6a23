"""What the sessions of other ranks leave to rank zero's, or to a gang's controller.

pytest's own files and its cache are written by one session: the others would overwrite them.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

_CACHE_WRITERS: Final = ("lfplugin", "nfplugin", "stepwiseplugin")
"""Plugins that keep what happened for the next session, and choose tests by it."""
_FILES: Final = ("xmlpath", "report_log")
"""Options of pytest and pytest-reportlog that name one file."""


def digest_of(ids: Iterable[str]) -> str:
    """Equal for equal `ids` in the same order: sessions that run together collect the same."""
    return sha256("\n".join(ids).encode()).hexdigest()


def unregister_writers(config: pytest.Config) -> None:
    """Unregister what reads and writes pytest's cache."""
    for name in _CACHE_WRITERS:
        if config.pluginmanager.hasplugin(name):
            config.pluginmanager.unregister(name=name)


def leave_files_to_controller(config: pytest.Config) -> None:
    """On a rank of a gang, before other plugins are configured: write no file of one session."""
    config.option.maxfail = 0
    config.option.log_file = os.devnull  # also instead of the ini file's
    for name in _FILES:
        if hasattr(config.option, name):
            setattr(config.option, name, None)
    if given := config.option.basetemp:
        # Beside the controller's, not within: each session empties its own when it begins.
        suffix = f"-ws{os.environ['WORLD_SIZE']}-rank-{os.environ['RANK']}"
        config.option.basetemp = f"{Path(given)}{suffix}"


def leave_files_to_root(config: pytest.Config) -> None:
    """Under torchrun, once it is known that there are benchmarks: write them no more.

    pytest has opened ``--log-file`` already; what follows does not reach it.
    """
    unregister_writers(config)
    for plugin in config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "LogXML":  # it ends itself, so it must stay registered
            plugin.logfile = os.devnull
    logging = config.pluginmanager.get_plugin("logging-plugin")
    if logging is not None:
        logging.set_log_path(os.devnull)
