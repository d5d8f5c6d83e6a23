"""A session that is a shard: measures what it is asked to, and writes what its front replays.

It has no cache, files or gate of its own. Beside its run directory, whose journal has the records,
it appends to :data:`REPORTS` one line per event::

    {"event": "test_started", "nodeid": …}
    {"event": "test_reported", "report": {…}}
    {"event": "test_finished", "nodeid": …, "warnings": […], "results": […]}
    {"event": "shard_ended", "exit_code": 0}

The results are pytest-benchmark's own. The last one has ``stop``, why a test or a hook ended the
session, with the ``exit`` code that a test asked for.

Begun anew in the same folder, it leaves out the tests that are finished there.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pytest

from gpubench_plugin.core.errors import GpubenchError, ResultsError, error_text
from gpubench_plugin.core.format import listed
from gpubench_plugin.core.hookspecs import LAUNCHER
from gpubench_plugin.engines.base import DEADLINE, FOLDER
from gpubench_plugin.environment import code
from gpubench_plugin.launchers import report_transport
from gpubench_plugin.launchers.context import state_of
from gpubench_plugin.results import journal, pytest_benchmark
from gpubench_plugin.results.journal import Journal
from gpubench_plugin.system import json_files
from gpubench_plugin.system.signals import die_with_parent

if TYPE_CHECKING:
    from gpubench_plugin.config.settings import Settings
    from gpubench_plugin.core.records import Json

REQUEST: Final = "request.json"
ROUNDS: Final = "rounds.json"
REPORTS: Final = "reports.jsonl"
RESULTS: Final = "results"
PARENT: Final = "GPUBENCH_SHARD_PARENT"
"""Environment variable with the process with which a shard's session ends, if there is one."""
_FILES: Final = ("xmlpath", "basetemp", "report_log", "htmlpath", "json_report_file")
"""Options of pytest, and of plugins for reports, that name files: the front writes them."""
_CHOICES: Final = ("lf", "failedfirst", "newfirst", "stepwise", "stepwise_skip", "clean_alluredir")
"""Options by which the front chooses tests and cleans its folders, once."""
_VERSION: Final = version("pytest-gpubench")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the front asks a shard for: the tests `ids`, with these `arguments` of pytest.

    One that `is_alone` has a host to itself. `expected_s` are durations of earlier runs by id. The
    `version` of gpubench and the hashes of the `code` must be the same on the node.
    """

    arguments: Sequence[str]
    ids: Sequence[str]
    is_alone: bool
    expected_s: Mapping[str, float]
    version: str = _VERSION
    code: Mapping[str, str]

    def write(self, folder: Path) -> None:
        """Write it into the shard's folder; raises ResultsError."""
        json_files.write_json(folder / REQUEST, vars(self))

    @classmethod
    def of(cls, folder: Path) -> Self:
        """The request in the `folder`; raises ResultsError."""
        return cls(**json_files.load(folder / REQUEST))


class ShardSession(report_transport.WarningKeeper):
    """Plugin of a shard's session; the ranks of a gang or of torchrun only select the tests."""

    def __init__(self, config: pytest.Config, folder: Path, request: Request):
        super().__init__()
        self._config = config
        self._folder = folder
        self._request = request
        self._deadline_s = float(os.environ.get(DEADLINE) or math.inf)
        self._reports: Journal | None = None
        self._end: Json = {}
        self._longest_s = 0.0
        if os.environ.pop(PARENT, "") == str(os.getppid()):
            die_with_parent()

    @classmethod
    def of(cls, config: pytest.Config) -> Self | None:
        """The plugin of this session, unless a test of the shard has started it.

        Raises:
            pytest.UsageError: the request cannot be read.
        """
        folder = Path(os.environ[FOLDER])
        try:
            request = Request.of(folder)
        except GpubenchError as error:
            raise pytest.UsageError(str(error)) from None
        own = [str(argument) for argument in config.invocation_params.args]
        is_own = own[len(own) - len(request.arguments) :] == [*request.arguments]
        return cls(config, folder, request) if is_own else None

    def settings(self, settings: Settings) -> Settings:
        """The `settings` of the front, without what is the front's alone."""
        rounds, rank = self._folder / ROUNDS, self._config.pluginmanager.get_plugin(LAUNCHER)
        is_torchruns = "RANK" in os.environ and (rank is None or rank.runs_all)
        fixed = (f"measure.rounds_file={rounds}",) if rounds.exists() else ()
        return replace(
            settings,
            on="",
            resume="",
            baseline="",
            gate="",
            overrides=(*settings.overrides, *fixed),
            report=None,
            world_sizes=() if is_torchruns else settings.world_sizes,
            results_dir=self._folder / RESULTS,
            registry="none",
        )

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Write no file that the front writes, and choose no tests by a cache: it has chosen."""
        for name in (*_FILES, *_CHOICES):
            if hasattr(config.option, name):
                setattr(config.option, name, None)
        config.option.log_file = os.devnull  # also instead of the ini file's

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Open the file of reports, in the one process that records."""
        manager = session.config.pluginmanager
        if manager.hasplugin("benchmark"):
            pytest_benchmark.disable_output(session.config)
        if not manager.hasplugin(LAUNCHER) and os.environ.get("RANK", "0") == "0":
            self._reports = Journal(self._folder / REPORTS)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        """Keep the tests that are asked for and not finished, in the order of the request.

        Raises:
            pytest.UsageError: this node has other code, or not all of them.
        """
        yield
        node = os.uname().nodename
        if self._request.version != _VERSION:
            versions = f"gpubench {_VERSION}, this session {self._request.version}"
            raise pytest.UsageError(f"{node} has {versions}: install the same on all nodes")
        if changed := code.changes(self._config.rootpath, self._request.code):
            raise pytest.UsageError(
                f"{node} has other code in {self._config.rootpath}: {listed(changed)}"
            )
        own = {item.nodeid: item for item in items}
        if missing := [nodeid for nodeid in self._request.ids if nodeid not in own]:
            raise pytest.UsageError(f"{node} does not collect {listed(missing)}")
        done = finished(self._folder)
        items[:] = [own[i] for i in self._request.ids if i not in done]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """Tell that a test begins, and that it has ended with all its tries, and its record.

        No test begins that would not end before the deadline of the engine. One without history
        may take as long as the longest so far.
        """
        self._write("test_started", nodeid=item.nodeid)
        begun_s = time.time()
        result = yield
        self._longest_s = max(self._longest_s, time.time() - begun_s)
        # pytest tells a test's warnings after its last report.
        warnings = report_transport.encode(self._config, [], self._warnings)["warnings"]
        self._warnings = []
        is_foreign = state_of(item) is None and self._config.pluginmanager.hasplugin("benchmark")
        results = pytest_benchmark.taken_results(self._config) if is_foreign else []
        self._write("test_finished", nodeid=item.nodeid, warnings=warnings, results=results)
        if nextitem is not None:
            expected_s = self._request.expected_s.get(nextitem.nodeid, self._longest_s)
            if time.time() + expected_s > self._deadline_s:
                item.session.shouldfail = f"{nextitem.name} would not end within the time limit"
        return result

    @pytest.hookimpl(wrapper=True)  # within the recording's, which drops what is sent
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None]:
        """Tell the report as others leave it."""
        yield
        encoded = report_transport.encode(self._config, [report])
        self._write("test_reported", report=encoded["reports"][0])

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Keep what a test that called ``pytest.exit`` asks for."""
        error = excinfo.value
        if isinstance(error, pytest.exit.Exception):  # a signal raises KeyboardInterrupt
            self._end |= {"stop": error_text(error), "exit": error.returncode}

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Tell the orderly end.

        One that fails as a whole is interrupted: by its deadline, by a full disk, or by what the
        front sees, too, as ``--maxfail``.
        """
        if session.shouldstop and not self._end:
            self._end["stop"] = str(session.shouldstop)
        if session.shouldfail:
            exitstatus = session.exitstatus = pytest.ExitCode.INTERRUPTED
        self._write("shard_ended", exit_code=int(exitstatus), **self._end)

    def _write(self, event: str, **fields: Any) -> None:
        try:
            if self._reports is not None:
                self._reports.append({"event": event, **fields})
        except ResultsError as error:
            self._reports = None
            session: Any = self._config.pluginmanager.get_plugin("session")
            session.shouldfail = f"cannot write results: {error}"


def finished(folder: Path) -> frozenset[str]:
    """Ids of the tests that a shard has finished in its `folder`."""
    path = folder / REPORTS
    if not path.exists():
        return frozenset()
    lines = journal.JournalTail(path, ("test_finished",))
    return frozenset(line["nodeid"] for line in lines if line["event"] == "test_finished")
