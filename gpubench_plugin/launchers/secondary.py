"""Disabling of pytest's output files on all ranks but the one whose session writes them.

The others would overwrite its files and its cache.
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
"""Names of the plugins of ``--lf``, ``--nf`` and ``--stepwise``, which read and write the cache."""
_FILE_OPTIONS: Final = ("xmlpath", "report_log")
"""Options of pytest and pytest-reportlog that name one file."""


def ids_hash(ids: Iterable[str]) -> str:
    """Hash of test ids in order, to compare the collections of ranks."""
    return sha256("\n".join(ids).encode()).hexdigest()


def unregister_writers(config: pytest.Config) -> None:
    """Unregister the plugins that read and write pytest's cache."""
    for name in _CACHE_WRITERS:
        if config.pluginmanager.hasplugin(name):
            config.pluginmanager.unregister(name=name)


def disable_output_before_configure(config: pytest.Config) -> None:
    """Disable output files on a rank of a gang, before other plugins are configured."""
    config.option.maxfail = 0
    config.option.log_file = os.devnull  # also instead of the ini file's
    for name in _FILE_OPTIONS:
        if hasattr(config.option, name):
            setattr(config.option, name, None)
    if basetemp := config.option.basetemp:
        # Beside the controller's, not within: each session empties its own when it starts.
        suffix = f"-ws{os.environ['WORLD_SIZE']}-rank-{os.environ['RANK']}"
        config.option.basetemp = f"{Path(basetemp)}{suffix}"


def disable_output(config: pytest.Config) -> None:
    """Disable output files on a rank under torchrun, after the collection has found benchmarks.

    pytest has opened ``--log-file`` already; it gets no further records.
    """
    unregister_writers(config)
    for plugin in config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "LogXML":  # it unregisters itself at the end
            plugin.logfile = os.devnull
    logging = config.pluginmanager.get_plugin("logging-plugin")
    if logging is not None:
        logging.set_log_path(os.devnull)
