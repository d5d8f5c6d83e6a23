"""Ranks other than zero: send a benchmark's outcome, and receive the joint verdict."""

from __future__ import annotations

import faulthandler
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, NoReturn, TextIO

import pytest

from gpubench_plugin.core.records import Json
from gpubench_plugin.launchers import merged_reports as merging
from gpubench_plugin.launchers import stacks
from gpubench_plugin.launchers.forced_exit import force_exit
from gpubench_plugin.launchers.outcome import JointVerdict, RankOutcome
from gpubench_plugin.launchers.torchrun.peers import alert_root, offer_stacks
from gpubench_plugin.launchers.torchrun.rank import RankRole, RunningTest
from gpubench_plugin.launchers.torchrun.store import OutcomeExchange
from gpubench_plugin.system.signals import die_with_parent
from gpubench_plugin.system.timeout_clock import wait_until


class Follower(RankRole):
    """A rank that writes only its log."""

    margin_s: ClassVar[float] = 5.0  # for rank zero to report the hang first

    def __init__(self, session: pytest.Session, rank: int):
        super().__init__(session, rank)
        die_with_parent()

    def connect(self, exchange: OutcomeExchange, folder: Path, log: TextIO) -> None:
        """Connect with the other ranks; dump stacks into `folder` on request."""
        self._exchange = exchange
        self._folder = folder
        offer_stacks(folder, self._rank)
        faulthandler.register(signal.SIGTERM, file=log, all_threads=True, chain=True)

    def handle_missing_ranks(
        self, item: pytest.Item, number: int, cause: str
    ) -> list[pytest.TestReport]:
        """End the session in place of rank zero, which did not arrive."""
        self._claim_exit()
        message = f"rank 0 {cause}"
        self.announce_departure(f"{item.name}: {message}")
        self._end(message)

    def exchange_outcomes(
        self, running: RunningTest, reports: Sequence[pytest.TestReport]
    ) -> list[pytest.TestReport]:
        """Send the outcome to rank zero and apply its verdict; exit if there is none."""
        own_outcome = RankOutcome(rank=self._rank, state="ended", reports=tuple(reports))
        self._post(reports, failed=own_outcome.failed is not None)
        running.deadline.rank_ended(running.clock.now(), passed=own_outcome.failed is None)
        verdict = self._verdict(running)
        if verdict is None:
            self._claim_exit()
            self._end_hung(running, own_outcome, 0)
        if verdict["exit"]:
            pytest.exit(verdict["exit"], returncode=verdict["exit_code"])
        if verdict["over"]:
            self.end_reason = self._session.shouldfail = verdict["over"]
        joint_verdict = JointVerdict(outcome=verdict["outcome"], reason=verdict["reason"])
        if not joint_verdict.agree:
            return merging.merge_reports(running.item, [own_outcome], joint_verdict)
        if merging.outcomes_of(reports) != verdict["phases"]:
            return merging.placeholder_reports(running.item, verdict["phases"])
        return list(reports)

    def exit_hung(self) -> None:
        """Log the stacks and exit, since rank zero has not ended the session in time."""
        assert self.running is not None
        self._claim_exit()
        message, stack = self.running.deadline.message, stacks.dump_own()
        own_outcome = RankOutcome(rank=self._rank, state="stuck", details=message, stack=stack)
        self._end_hung(self.running, own_outcome, self._rank)

    def leave(self) -> None:
        """Wait until rank zero has written everything, unless the session was aborted.

        That may take long, since it may run other tests, and torchrun would kill it as soon as
        another rank exits with 1. If it dies, the store does, too, or torchrun ends this process.
        """
        if self._exchange is not None and not self.end_reason:
            with suppress(RuntimeError):
                self.exchange.wait_until_written()

    def close(self) -> None:
        """Restore the signal handlers."""
        if self._exchange is not None:
            faulthandler.unregister(signal.SIGTERM)

    def _verdict(self, running: RunningTest) -> Json | None:
        """Rank zero's verdict; None if it does not finish the benchmark, even after an alert.

        Alerted, it can still collect all stacks. On another host it notices this rank's exit.
        """
        number = running.number
        verdict: Json | None = None

        def is_announced() -> bool:
            nonlocal verdict
            verdict = self.exchange.verdict(number)
            return verdict is not None

        def remaining_s() -> float:
            # Once rank zero has ended the test, it enforces the deadline; the watchdog still runs.
            if self.exchange.is_marked(f"{number}/root"):
                return self.margin_s
            return running.clock.remaining(running.deadline.at)

        with suppress(RuntimeError):  # the store is gone with rank zero
            if not wait_until(is_announced, remaining_s):
                self.exchange.give_up(number, running.deadline.message)
                alert_root(self._folder)
                deadline = running.clock.now() + self.margin_s
                wait_until(is_announced, lambda: running.clock.remaining(deadline))
        return verdict

    def _end_hung(self, running: RunningTest, own_outcome: RankOutcome, rank: int) -> NoReturn:
        """End the session since `rank` hangs; the exit is claimed."""
        verdict = JointVerdict(outcome="hang", reason=f"rank {rank} {running.deadline.message}")
        reports = merging.merge_reports(running.item, [own_outcome], verdict)
        self._end(verdict.reason, reports)

    def _end(self, message: str, reports: Sequence[pytest.TestReport] = ()) -> NoReturn:
        code = pytest.ExitCode.TESTS_FAILED
        force_exit(self._session, reports, message=f"rank {self._rank}: {message}", code=code)
