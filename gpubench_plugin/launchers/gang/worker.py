"""Rank of a gang: runs the tests that the controller orders, and reports their outcomes."""

from __future__ import annotations

import gc
import os
import queue
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from socket import AF_UNIX, socket
from typing import Any

import pytest

from gpubench_plugin.config.rounds_file import FixedRounds
from gpubench_plugin.core.records import Json
from gpubench_plugin.launchers import output, report_payload, report_transport, stacks
from gpubench_plugin.launchers.context import STATE, update_context
from gpubench_plugin.launchers.gang.protocol import JoinInfo, Link
from gpubench_plugin.launchers.in_process import LauncherPlugin
from gpubench_plugin.results import pytest_benchmark
from gpubench_plugin.results.journal import as_json
from gpubench_plugin.results.run_directory import RunDirectory
from gpubench_plugin.system.helper_threads import HelperThread
from gpubench_plugin.system.signals import die_with_parent


class GangRank(LauncherPlugin):
    """One rank's side of a gang; created early, so that it exits with its controller."""

    def __init__(self, config: pytest.Config, join_info: JoinInfo):
        super().__init__(config)
        output.disable_output_before_configure(config)
        die_with_parent()
        rank = int(os.environ["RANK"])
        stacks.enable_dumps(join_info.folder, rank)
        sock = socket(AF_UNIX)
        sock.connect(str(join_info.socket))
        self._connection = Link(sock)
        # Else a process forked by a test would hold the connection of a dead rank open.
        os.register_at_fork(after_in_child=self._connection.close)
        self._connection.send({"token": join_info.token, "rank": rank, "pid": os.getpid()})
        self._orders: queue.SimpleQueue[Json] = queue.SimpleQueue()
        HelperThread("gpubench-orders", self._listen).start()
        self._items: dict[str, pytest.Item] = {}
        self._reports: list[pytest.TestReport] = []
        self._warnings: list[Json] = []
        self._collection_errors: list[str] = []
        self._running, self._number = "", 0

    def _listen(self) -> None:
        """Queue orders; exit if the controller disconnects."""
        while (order := self._connection.receive()) is not None:
            self._orders.put(order)
            if "finish" in order:
                return
        os._exit(1)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Disable the output of plugins that were configured after this one."""
        if isinstance(sys.stdout, output.DeferredStream):
            # pytest's reporter keeps the stream; what tests print with -s goes to the log.
            sys.stdout.discard()
            sys.stdout = sys.stdout.terminal
        output.unregister_writers(self._config)

    def pytest_internalerror(self, excrepr: object) -> None:
        """Log internal errors, since the terminal reporter is disabled."""
        sys.stderr.write(f"{excrepr}\n")

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Log the reason of ``pytest.exit``, for example in a conftest."""
        sys.stderr.write(f"{excinfo.exconly()}\n")

    def start(self, session: pytest.Session, benchmarks: Sequence[pytest.Item]) -> None:
        """Report the collected tests and receive the run directory."""
        super().start(session, benchmarks)
        pytest_benchmark.disable_output(self._config)
        self._items = {item.nodeid: item for item in benchmarks}
        self._connection.send({"collected": len(benchmarks)})
        run = RunDirectory(path=Path(self._orders.get()["run_directory"]))
        is_root = self._context.ranks.world.is_root
        update_context(
            self._config,
            ranks_folder=run.path / "ranks",
            run=run if is_root else None,
            journal=self._send_event if is_root else None,
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep collection errors for the controller."""
        if report.failed:
            self._collection_errors.append(report.longreprtext[-report_transport.LONGEST_TEXT :])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> bool:
        """Run ordered tests until the controller stops."""
        while "finish" not in (order := self._orders.get()):
            number, ranks = order["number"], self._context.ranks
            if "health_timeout_s" in order:
                ranks.resynchronize(number)
                is_healthy = ranks.is_healthy(order["health_timeout_s"])
                self._connection.send({"number": number, "healthy": is_healthy})
            elif item := self._items.get(order["run"]):
                self._run(item, order)
            else:
                errors = "\n".join(self._collection_errors)[-report_transport.LONGEST_TEXT :]
                self._connection.send({"absent": errors, "number": number})
        return True

    def _send_event(self, nodeid: str, event: Json) -> None:
        """Send an event of the running benchmark to the controller, which journals it."""
        if nodeid == self._running:  # else the controller would take it for an answer
            self._connection.send({"event": as_json(event), "number": self._number})

    def _run(self, item: pytest.Item, order: Mapping[str, Any]) -> None:
        self._reports = []
        self._running, self._number = item.nodeid, order["number"]
        reply: Json = {"number": order["number"]}
        self._context.ranks.resynchronize(order["number"])
        if rounds := order.get("rounds"):
            state = item.stash[STATE]
            state.case = replace(state.case, fixed_rounds=FixedRounds(**rounds))
        try:
            self._config.hook.pytest_runtest_protocol(
                item=item, nextitem=self._items.get(order["next"])
            )
        except (pytest.exit.Exception, KeyboardInterrupt) as error:
            reply |= report_transport.exit_to_json(error)
        self._running = ""
        recorded = self._context.ranks.world.is_root
        reports = report_transport.encode(
            self._config, self._reports, self._warnings, recorded=recorded
        )
        self._connection.send({**reply, **reports})
        self._warnings = []
        for report in self._reports:
            report_payload.drop(report)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the report until the test is over."""
        self._reports.append(report)

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        """Keep warnings of tests; the controller already has those of the collection."""
        if when == "runtest":
            self._warnings.append(
                report_transport.warning_to_json(warning_message, when, nodeid, location)
            )

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Leave the process group with the other ranks, then exit at once."""
        if self._items:
            self._context.ranks.leave()
        # At exit Python collects all objects several times, with torch for half a second, for which
        # the next gang would wait.
        gc.freeze()
