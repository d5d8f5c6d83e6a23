"""Rank: runs the tests that its controller orders, phase by phase, and reports how they ended."""

from __future__ import annotations

import gc
import os
import queue
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import call_and_report

from gpubench_plugin.config.parametrization import id_of
from gpubench_plugin.config.rounds_file import FixedRounds
from gpubench_plugin.core.records import Json
from gpubench_plugin.launchers import output, report_transport
from gpubench_plugin.launchers.context import (
    CONTEXT,
    STATE,
    RunContext,
    case_on_ranks,
    context_of,
    state_of,
    update_context,
)
from gpubench_plugin.launchers.link import Invitation, connect
from gpubench_plugin.launchers.processes import this_process
from gpubench_plugin.ranks.world import SESSION
from gpubench_plugin.results import pytest_benchmark, report_payload
from gpubench_plugin.results.journal import as_json
from gpubench_plugin.results.run_directory import RunDirectory
from gpubench_plugin.system import stacks
from gpubench_plugin.system.helper_threads import HelperThread
from gpubench_plugin.system.signals import ENDING, die_with_parent

if TYPE_CHECKING:
    from gpubench_plugin.launchers.merged_reports import Phase


class Rank(report_transport.WarningKeeper):
    """One rank's side of a team, from its connection on; exits with its controller.

    Raises:
        GangError: the controller cannot be reached.
    """

    def __init__(self, config: pytest.Config, invitation: Invitation):
        super().__init__()
        self._config = config
        self.runs_all = invitation.runs_all
        if self.runs_all:  # its launcher signals all processes; the controller decides
            for number in ENDING:
                signal.signal(number, lambda *_: None)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        die_with_parent()
        os.environ[SESSION] = invitation.digest
        rank = int(os.environ["RANK"])
        if invitation.folder.is_dir():  # on the controller's host
            stacks.enable_dumps(invitation.folder, rank)
        self._connection = connect(invitation, {"rank": rank, **this_process()})
        # Else a process forked by a test would hold the connection of a dead rank open.
        os.register_at_fork(after_in_child=self._connection.close)
        self._orders: queue.SimpleQueue[Json] = queue.SimpleQueue()
        HelperThread("gpubench-orders", self._listen).start()
        self._items: dict[str, pytest.Item] = {}
        self._reports: list[pytest.TestReport] = []
        self._collection_errors: list[str] = []
        self._order: Json = {}
        self._ending: Json = {}
        self._running = ""
        self._number = 0

    @property
    def _context(self) -> RunContext:
        return context_of(self._config)

    def _listen(self) -> None:
        """Queue orders; exit if the controller disconnects."""
        while (order := self._connection.receive()) is not None:
            if "stack" in order:
                self._connection.send({"stack": stacks.dump_own()})
                continue
            self._orders.put(order)
            if "finish" in order:
                return
        os._exit(1)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Disable the output of plugins that were configured after this one."""
        self.silence()
        output.unregister_cache(self._config)

    @staticmethod
    def silence() -> None:
        """Discard what pytest's reporter prints; what tests print with ``-s`` is not."""
        if isinstance(sys.stdout, output.DeferredStream):  # the reporter keeps the stream
            sys.stdout.discard()
            sys.stdout = sys.stdout.terminal

    def pytest_internalerror(self, excrepr: object) -> None:
        """Log internal errors, since the terminal reporter is disabled."""
        sys.stderr.write(f"{excrepr}\n")

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Log the reason of ``pytest.exit``, for example in a conftest."""
        sys.stderr.write(f"{excinfo.exconly()}\n")

    def start(self, session: pytest.Session, benchmarks: Sequence[pytest.Item]) -> None:
        """Report the collected tests, and apply what the controller tells every rank."""
        pytest_benchmark.disable_output(self._config)
        output.mute_reports(self._config)
        items = session.items if self.runs_all else benchmarks
        self._items = {item.nodeid: item for item in items}
        self._connection.send({"collected": [id_of(item) for item in benchmarks]})
        welcome = self._orders.get()["welcome"]
        for name, value in welcome["options"].items():
            setattr(self._config.option, name, value)
        run = RunDirectory(path=Path(welcome["run_directory"]))
        is_root = self._context.ranks.world.is_root
        ranks_folder = run.path / "ranks"
        # On a host without this file system the folder does not exist yet.
        ranks_folder.mkdir(parents=True, exist_ok=True)
        update_context(
            self._config,
            ranks_folder=ranks_folder,
            run=run if is_root else None,
            journal=self._send_event if is_root else None,
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep collection errors for the controller."""
        if report.failed:
            self._collection_errors.append(report.longreprtext[-report_transport.LONGEST_TEXT :])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run ordered tests until the controller stops."""
        while "finish" not in (order := self._orders.get()):
            self._order, self._number = order, order["number"]
            if "health_timeout_s" in order:
                self._answer({"healthy": self._is_healthy(order)})
            elif item := self._items.get(order["run"]):
                self._run(item)
            else:
                errors = "\n".join(self._collection_errors)[-report_transport.LONGEST_TEXT :]
                self._answer({"absent": errors})
        session.testsfailed, session.testscollected = 0, 1  # the exit code is the controller's
        return True

    def _is_healthy(self, order: Json) -> bool:
        """Whether the ranks can communicate, in a new group if none can replace these ranks."""
        ranks = self._context.ranks
        ranks.resynchronize(self._number)
        if self.runs_all and order["damaged"] and ranks.renew():
            return True
        return ranks.is_healthy(order["health_timeout_s"]) or (self.runs_all and ranks.renew())

    def _answer(self, message: Json) -> None:
        self._connection.send({**message, "order": self._order["order"], "number": self._number})

    def _send_event(self, nodeid: str, event: Json) -> None:
        """Send an event of the running benchmark to the controller, which journals it."""
        if nodeid == self._running:  # else the controller would take it for an answer
            self._connection.send({"event": as_json(event), "number": self._number})

    def _run(self, item: pytest.Item) -> None:
        """Run the test in pytest's own surroundings, without those of other plugins.

        What surrounds a whole test (a timeout, a repetition, a report) does so in the controller.
        """
        self._running = id_of(item)
        self._context.ranks.resynchronize(self._number)
        if rounds := self._order.get("rounds"):
            state = item.stash[STATE]
            state.case = replace(state.case, fixed_rounds=FixedRounds(**rounds))
        hook = self._config.hook.pytest_runtest_protocol
        foreign = [
            implementation.plugin
            for implementation in hook.get_hookimpls()
            if implementation.function.__module__.partition(".")[0] not in output.SURROUNDINGS
        ]
        manager = self._config.pluginmanager
        manager.subset_hook_caller("pytest_runtest_protocol", foreign)(item=item, nextitem=None)
        self._running = ""
        self._reply()  # of the teardown, now that pytest has recorded the test's warnings

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        """Run the phases of the test as they are ordered."""
        function: Any = item
        has_request = hasattr(item, "_request")
        if has_request and not function._request:
            function._initrequest()  # it runs again
        try:
            self._run_phase(item, "setup")
            while self._order["phase"] != "teardown":
                self._reply()
                if "finish" in (order := self._orders.get()):
                    self._orders.put(order)
                    break
                is_left_out = (self._order["phase"], order["phase"]) == ("setup", "teardown")
                if is_left_out and (state := state_of(item)) and state.fixture is not None:
                    pytest_benchmark.mark_ended(state.fixture)  # else it warns that none used it
                self._order = order
                self._run_phase(item, order["phase"])
            return True
        finally:
            if has_request:
                function._request = function.funcargs = None  # as pytest does

    def _run_phase(self, item: pytest.Item, phase: Phase) -> None:
        details = {"nextitem": self._items.get(self._order["next"])} if phase == "teardown" else {}
        try:
            self._reports.append(call_and_report(item, phase, log=False, **details))
        except (pytest.exit.Exception, KeyboardInterrupt) as error:
            self._ending |= report_transport.exit_to_json(error)
        if phase == "call" or not (self._reports and self._reports[-1].passed):
            self._context.ranks.announce(self._number, f"the end of {item.name}")
        for name in report_transport.STOPS:
            if reason := getattr(item.session, name):
                self._ending[name] = str(reason)
        if phase == "call" and self._context.ranks.world.is_root:
            results = pytest_benchmark.taken_results(self._config)
            if case_on_ranks(item) is None:
                self._ending["pytest_benchmark"] = results

    def _reply(self) -> None:
        """Report how the phase ended."""
        reports = report_transport.encode(
            self._config, self._reports, self._warnings, recorded=self._context.ranks.world.is_root
        )
        self._answer({**self._ending, **reports})
        for report in self._reports:
            report_payload.drop(report)
        self._reports, self._warnings, self._ending = [], [], {}

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what a phase reports beside itself, as each subtest does."""
        self._reports.append(report)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Leave the process group, then exit at once."""
        if CONTEXT in self._config.stash:
            self._context.ranks.close()
        # At exit Python collects all objects several times, with torch for half a second, for which
        # the next gang would wait.
        gc.freeze()
