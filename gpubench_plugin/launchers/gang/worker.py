"""A rank of a gang: runs what the controller orders, and reports how it went."""

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

from gpubench_plugin.config import FixedRounds
from gpubench_plugin.environment import HelperThread
from gpubench_plugin.launchers import report_payload, secondary, signals, stacks
from gpubench_plugin.launchers.context import STATE, update_context
from gpubench_plugin.launchers.gang.protocol import JoinInfo, Link
from gpubench_plugin.launchers.in_process import RunsBenchmarks
from gpubench_plugin.launchers.output import DeferredStream
from gpubench_plugin.launchers.rank_reports import (
    LONGEST_TEXT,
    encode,
    exit_to_json,
    warning_to_json,
)
from gpubench_plugin.records import Json
from gpubench_plugin.results import RunDirectory, pytest_benchmark


class GangRank(RunsBenchmarks):
    """One rank's side of a gang; made early, so that it notices a controller that died."""

    def __init__(self, config: pytest.Config, invitation: JoinInfo):
        super().__init__(config)
        secondary.leave_files_to_controller(config)
        signals.die_with_parent()
        rank = int(os.environ["RANK"])
        stacks.enable_dumps(invitation.stack(rank))
        end = socket(AF_UNIX)
        end.connect(str(invitation.socket))
        self._wire = Link(end)
        # A process forked by a test must not seem to be this rank when this one is gone.
        os.register_at_fork(after_in_child=self._wire.close)
        self._wire.send({"token": invitation.token, "rank": rank, "pid": os.getpid()})
        self._orders: queue.SimpleQueue[Json] = queue.SimpleQueue()
        HelperThread("gpubench-orders", self._listen).start()
        self._items: dict[str, pytest.Item] = {}
        self._reports: list[pytest.TestReport] = []
        self._warnings: list[Json] = []
        self._not_collected: list[str] = []

    def _listen(self) -> None:
        """Queue incoming orders; exit if the controller disconnects."""
        while (order := self._wire.receive()) is not None:
            self._orders.put(order)
            if "finish" in order:
                return
        os._exit(1)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """The same for objects that other plugins have created since."""
        if isinstance(sys.stdout, DeferredStream):
            # pytest's reporter keeps the valve; what tests print with -s is for the user.
            sys.stdout.discard()
            sys.stdout = sys.stdout.terminal
        secondary.unregister_writers(self._config)

    def pytest_internalerror(self, excrepr: object) -> None:
        """Log internal errors, since the terminal reporter is disabled."""
        sys.stderr.write(f"{excrepr}\n")

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """The same for ``pytest.exit``, for example in a conftest."""
        sys.stderr.write(f"{excinfo.exconly()}\n")

    def start(self, session: pytest.Session, benchmarks: Sequence[pytest.Item]) -> None:
        """Report the collected tests and receive the run directory."""
        super().start(session, benchmarks)
        pytest_benchmark.disable_output(self._config)
        self._items = {item.nodeid: item for item in benchmarks}
        digest = secondary.digest_of(self._items)
        self._wire.send({"count": len(benchmarks), "digest": digest, "warnings": self._warnings})
        self._warnings = []
        run = RunDirectory(path=Path(self._orders.get()["run_directory"]))
        is_root = self._context.ranks.world.is_root
        update_context(self._config, ranks_folder=run.path / "ranks", run=run if is_root else None)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep collection errors for the controller."""
        if report.failed:
            self._not_collected.append(report.longreprtext[-LONGEST_TEXT:])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> bool:
        """Run ordered tests until the controller stops."""
        while "finish" not in (order := self._orders.get()):
            if "soundness" in order:
                self._tell_soundness(order)
                continue
            item = self._items.get(order["run"])
            if item is None:
                why = "\n".join(self._not_collected)[-LONGEST_TEXT:]
                self._wire.send({"absent": why, "number": order["number"]})
            else:
                self._run(item, order)
        return True

    def _tell_soundness(self, order: Mapping[str, Any]) -> None:
        self._context.ranks.resynchronize(order["number"])
        sound = self._context.ranks.is_healthy(order["soundness"])
        self._wire.send({"number": order["number"], "sound": sound})

    def _run(self, item: pytest.Item, order: Mapping[str, Any]) -> None:
        self._reports = []
        told: Json = {"number": order["number"]}
        self._context.ranks.resynchronize(order["number"])
        if rounds := order.get("rounds"):
            state = item.stash[STATE]
            state.case = replace(state.case, fixed_rounds=FixedRounds(**rounds))
        try:
            self._config.hook.pytest_runtest_protocol(
                item=item, nextitem=self._items.get(order["following"])
            )
        except (pytest.exit.Exception, KeyboardInterrupt) as error:
            told |= exit_to_json(error)
        recorded = self._context.ranks.world.is_root
        reports = encode(self._config, self._reports, self._warnings, recorded=recorded)
        self._wire.send({**told, **reports})
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
            self._warnings.append(warning_to_json(warning_message, when, nodeid, location))

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Leave the process group with the other ranks, then exit at once."""
        if self._items:
            self._context.ranks.leave()
        # As Python ends it looks through all objects several times: half a second with torch, for
        # which the next gang would wait.
        gc.freeze()
