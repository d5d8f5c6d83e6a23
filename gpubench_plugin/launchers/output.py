"""Output of ranks: deferred under torchrun, forwarded with a rank prefix in a gang.

pytest's own files are written by one session alone: the others would overwrite them and its cache.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from gpubench_plugin.launchers.proxies import is_conftest

if TYPE_CHECKING:
    import pytest


def is_secondary(environment: Mapping[str, str]) -> bool:
    """Whether torchrun started this process as a rank other than zero."""
    return environment.get("RANK", "0") != "0" and environment.get("WORLD_SIZE", "1") != "1"


class DeferredStream:
    """Text stream that buffers writes until they are released or discarded.

    Under torchrun, in a session with benchmarks, only rank zero prints. Until the collection has
    shown whether there are any, the output of other ranks waits here.
    """

    def __init__(self, terminal: TextIO):
        self.terminal = terminal
        self._buffer: deque[str] = deque()
        self._write: Callable[[str], object] = self._buffer.append

    def release(self) -> None:
        """Flush the buffer to the terminal, and write through from now on."""
        self._write = self.terminal.write
        self.terminal.writelines(self._buffer)
        self.terminal.flush()
        self._buffer.clear()

    def discard(self) -> None:
        """Discard the buffer and all later writes."""
        self._buffer = deque(maxlen=0)
        self._write = self._buffer.append

    def write(self, text: str) -> int:
        """Buffer or forward `text`."""
        self._write(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        """Same as the terminal's."""
        return getattr(self.terminal, name)


_POLL_S: Final = 0.1
"""Looks live to the user at ten file reads per rank and second."""


class LogForwarder:
    """Follows a gang's logs and passes complete lines, each with its rank, to `write`."""

    def __init__(self, write: Callable[[str], object]):
        self._write = write
        self._logs: Mapping[int, Path] = {}
        self._offsets: dict[int, int] = {}

    def follow(self, logs: Mapping[int, Path]) -> None:
        """Start following `logs` by rank from their ends."""
        self._logs = logs
        self._offsets = {rank: log.stat().st_size for rank, log in logs.items()}

    def __call__(self) -> float:
        """Forward new lines; return the seconds until the next poll."""
        self._forward(lambda text: text.rfind(b"\n") + 1)
        return _POLL_S

    def finish(self) -> None:
        """Forward the rest, including an unterminated last line, and stop following."""
        self._forward(len)
        self._logs = {}

    def _forward(self, complete: Callable[[bytes], int]) -> None:
        """Forward of each new text the `complete` bytes."""
        for rank, path in self._logs.items():
            with path.open("rb") as log:
                log.seek(self._offsets[rank])
                text = log.read()
            lines = text[: complete(text)]
            self._offsets[rank] += len(lines)
            for line in lines.decode(errors="replace").splitlines():
                self._write(f"[rank {rank}] {line}\n")


_CACHE_WRITERS: Final = ("lfplugin", "nfplugin", "stepwiseplugin")
"""Names of the plugins of ``--lf``, ``--nf`` and ``--stepwise``, which read and write the cache."""
_FILE_OPTIONS: Final = ("xmlpath", "report_log", "allure_report_dir")
"""Options of pytest, pytest-reportlog and Allure by which files are written from the start."""
_CONTROLLER_HOOKS: Final = ("pytest_runtest_protocol", "pytest_runtest_logreport")
"""Hooks around a whole test and of its reports: a plugin with one works in the controller alone."""
SURROUNDINGS: Final = ("_pytest", "gpubench_plugin")
"""Packages whose hooks around a test run on ranks, too."""


def unregister_cache(config: pytest.Config) -> None:
    """Unregister the plugins that read and write pytest's cache."""
    for name in _CACHE_WRITERS:
        if config.pluginmanager.hasplugin(name):
            config.pluginmanager.unregister(name=name)


def mute_reports(config: pytest.Config) -> None:
    """Mute the plugins that surround whole tests or report them, once the tests are collected."""
    coverage = config.pluginmanager.get_plugin("_cov")
    if coverage is not None and coverage.cov_controller is not None:
        _mute(config, coverage)
        config.add_cleanup(coverage.cov_controller.cov.save)  # for the controller to combine
    for name in _CONTROLLER_HOOKS:
        for implementation in getattr(config.hook, name).get_hookimpls():
            package = implementation.function.__module__.partition(".")[0]
            if package not in SURROUNDINGS and not is_conftest(implementation.plugin):
                _mute(config, implementation.plugin)


def _mute(config: pytest.Config, plugin: object) -> None:
    """Call no hook of the plugin any more, but let it end as it would."""
    for hook in config.pluginmanager.get_hookcallers(plugin) or ():
        if hook.name != "pytest_unconfigure":
            hook._remove_plugin(plugin)


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
    unregister_cache(config)
    for plugin in config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "LogXML":  # it unregisters itself at the end
            plugin.logfile = os.devnull
    logging = config.pluginmanager.get_plugin("logging-plugin")
    if logging is not None:
        logging.set_log_path(os.devnull)
