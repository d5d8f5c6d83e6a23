"""Rank zero under torchrun: collects outcomes, announces the joint verdict and writes the results.

Since it writes, its end must be handled. Two threads are blocked in the kernel meanwhile: one waits
for signals and deaths of ranks on this host, one for the timeout.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import ClassVar

import pytest

from gpubench_plugin.core.records import Json
from gpubench_plugin.launchers import merged_reports as merging
from gpubench_plugin.launchers.forced_exit import force_exit
from gpubench_plugin.launchers.outcome import JointVerdict, RankOutcome, judge, ranks_text
from gpubench_plugin.launchers.report_transport import decode
from gpubench_plugin.launchers.torchrun.exit_watcher import Deaths, ExitWatcher
from gpubench_plugin.launchers.torchrun.peers import Peers, exit_text, offer_stacks
from gpubench_plugin.launchers.torchrun.rank import RankRole, RunningTest
from gpubench_plugin.launchers.torchrun.store import OutcomeExchange
from gpubench_plugin.system.signals import die_with_parent
from gpubench_plugin.system.timeout_clock import wait_until


class RootRank(RankRole):
    """Rank zero; created before the rendezvous so that no signal is lost."""

    margin_s: ClassVar[float] = 0.0

    def __init__(self, session: pytest.Session):
        super().__init__(session, 0)
        self._peers: Peers | None = None
        self._exit_watcher = ExitWatcher(self.handle_exit_request)
        self._agent = os.getppid()
        die_with_parent(signal.SIGTERM)

    def connect(self, exchange: OutcomeExchange, peers: Peers) -> None:
        """Connect with the other ranks, and watch for deaths on this host."""
        self._exchange = exchange
        self._peers = peers
        offer_stacks(peers.folder, 0)
        self._exit_watcher.accept_alerts(peers.alert_pipe)
        self._exit_watcher.watch({rank: pid for rank, pid in peers.local_pids.items() if rank > 0})

    def handle_missing_ranks(
        self, item: pytest.Item, number: int, cause: str
    ) -> list[pytest.TestReport]:
        """Report the missing ranks, and end the session on all ranks."""
        assert self._peers is not None
        self._exit_watcher.finish()
        absent_ranks = self.exchange.missing_ranks(number)
        present_ranks = set(range(self.exchange.size)).difference(absent_ranks)
        stacks = self._peers.stacks(excluded=present_ranks)
        outcomes = [
            RankOutcome(rank=r, state="stuck", details=cause, stack=stacks.get(r, ""))
            for r in absent_ranks
        ]
        reason = f"{ranks_text(absent_ranks, self.exchange.size)} {cause}"
        verdict = JointVerdict(outcome="hang", reason=reason)
        self.end_session(item, verdict.reason)
        self.announce_departure(f"{item.name}: {verdict.reason}")
        return merging.merge_reports(item, outcomes, verdict)

    def exchange_outcomes(
        self, running: RunningTest, reports: Sequence[pytest.TestReport]
    ) -> list[pytest.TestReport]:
        """Wait for the other ranks within the deadline, judge, and announce."""
        running.reports = reports
        self.exchange.mark(f"{running.number}/root")
        own_outcome = RankOutcome(rank=0, state="ended", reports=tuple(reports))
        self._post((), failed=own_outcome.failed is not None)  # counted with the others
        done = self._wait_for_all(running)
        if not done:
            self._exit_watcher.finish()
        outcomes = self._outcomes(running, done=done)
        verdict = judge(outcomes)
        lost = [outcome for outcome in outcomes if outcome.context_lost]
        if lost:
            self._exit_watcher.finish()  # such a process may die as it ends
        if lost or not done:
            self.end_session(running.item, verdict.reason or lost[0].reason)
        joint_reports = merging.merge_reports(running.item, outcomes, verdict)
        exiting = next((outcome for outcome in outcomes if outcome.exit is not None), None)
        self._announce(running.number, verdict, joint_reports, exiting)
        if exiting is not None:
            self._exit_watcher.finish()
            pytest.exit(f"rank {exiting.rank}: {exiting.exit}", returncode=exiting.exit_code)
        return joint_reports

    def exit_hung(self) -> None:
        """Collect all stacks, record the timeout, and exit."""
        self._claim_exit()
        assert self.running is not None
        self._end_benchmark(self.running, {})

    def handle_exit_request(
        self, number: signal.Signals | None, deaths: Deaths, was_alerted: bool
    ) -> None:
        """Record a rank's death or an interruption, and exit.

        An alert after the end of its benchmark is ignored.
        """
        if self.running is None and number is None and not deaths:
            return
        self._claim_exit()
        if os.getppid() != self._agent:  # the other ranks have died with it
            self._end("torchrun has ended", pytest.ExitCode.INTERRUPTED)
        elif (deaths or was_alerted) and self.running is not None:
            self._end_benchmark(self.running, deaths)
        elif deaths:
            message = f"{_deaths_text(deaths)} between two benchmarks"
            with suppress(RuntimeError):
                message = self.exchange.departed_text() or message
            self._end(message, pytest.ExitCode.TESTS_FAILED)
        elif self._peers is None:
            message = (
                "torchrun stopped this rank before all had connected; see the other ranks' output"
            )
            self._end(message, pytest.ExitCode.TESTS_FAILED)
        else:
            assert number is not None
            self._end(f"interrupted by {number.name}", pytest.ExitCode.INTERRUPTED)

    def finish(self) -> None:
        """Write the results regardless of deaths and SIGTERM from now on."""
        self._exit_watcher.finish()

    def leave(self) -> None:
        """Release the other ranks: torchrun kills rank zero as soon as one of them exits with 1."""
        if self._exchange is not None:
            with suppress(RuntimeError):
                self.exchange.mark("written")

    def close(self) -> None:
        """Restore the signal handlers and remove the private folder."""
        self._exit_watcher.close()
        if self._peers is not None:
            self._peers.close()

    def _wait_for_all(self, running: RunningTest) -> bool:
        """Wait for every rank to finish the benchmark; False on timeout."""
        exchange, clock, deadline = self.exchange, running.clock, running.deadline
        size, known_failures = exchange.size, 0

        def all_ended() -> bool:
            nonlocal known_failures
            ended_count, failed_count = exchange.ended(running.number)
            if failed_count > known_failures:
                deadline.rank_ended(clock.now(), passed=False)
                known_failures = failed_count
            return ended_count == size

        deadline.rank_ended(clock.now(), passed=True)
        return wait_until(all_ended, lambda: clock.remaining(deadline.at))

    def _outcomes(
        self, running: RunningTest, *, done: bool, deaths: Mapping[int, int | None] = {}
    ) -> list[RankOutcome]:
        """Outcomes on every rank, with stacks of those that did not finish."""
        assert self._peers is not None
        records: dict[int, Json] = {}
        give_up_reason = ""
        with suppress(RuntimeError):  # without the store
            records = self.exchange.records(running.number)
            give_up_reason = "" if done else self.exchange.give_up_reason(running.number)
        stacks = {} if done else self._peers.stacks(excluded=deaths)
        outcomes = []
        for rank in range(self.exchange.size):
            if rank in deaths and not give_up_reason:
                details = exit_text(deaths[rank])
                outcomes.append(RankOutcome(rank=rank, state="died", details=details))
            elif rank == 0 and running.reports is not None:
                outcomes.append(RankOutcome(rank=0, state="ended", reports=tuple(running.reports)))
            elif rank in records:
                outcomes.append(decode(running.item.config, rank, records[rank]))
            else:
                message, stack = give_up_reason or running.deadline.message, stacks.get(rank, "")
                outcomes.append(RankOutcome(rank=rank, state="stuck", details=message, stack=stack))
        return outcomes

    def _announce(
        self,
        number: int,
        verdict: JointVerdict,
        reports: Sequence[pytest.TestReport],
        exiting: RankOutcome | None = None,
    ) -> None:
        self.exchange.announce(
            number,
            {
                "outcome": verdict.outcome,
                "reason": verdict.reason,
                "phases": merging.outcomes_of(reports),
                "over": self.end_reason,
                "exit": exiting and f"rank {exiting.rank}: {exiting.exit}",
                "exit_code": exiting and exiting.exit_code,
            },
        )

    def _end_benchmark(self, running: RunningTest, deaths: Mapping[int, int | None]) -> None:
        """Record the benchmark's outcome and exit."""
        outcomes = self._outcomes(running, done=False, deaths=deaths)
        verdict = judge(outcomes)
        if verdict.agree:  # all had ended the benchmark when one died
            verdict = JointVerdict(outcome="crashed", reason=_deaths_text(deaths))
        self.end_session(running.item, verdict.reason)
        joint_reports = merging.merge_reports(running.item, outcomes, verdict)
        with suppress(RuntimeError):
            self._announce(running.number, verdict, joint_reports)
        self._end(self.end_reason, pytest.ExitCode.TESTS_FAILED, joint_reports)

    def _end(
        self,
        message: str,
        code: pytest.ExitCode,
        reports: Sequence[pytest.TestReport] = (),
    ) -> None:
        os.kill(os.getpid(), signal.SIGTERM)  # blocks the main thread once it runs Python again
        if self._peers is not None:
            self._peers.close()
        force_exit(
            self._session,
            reports,
            message=message,
            code=code,
            on_written=self.leave,
        )


def _deaths_text(deaths: Mapping[int, int | None]) -> str:
    return "; ".join(f"rank {rank} {exit_text(status)}" for rank, status in sorted(deaths.items()))
