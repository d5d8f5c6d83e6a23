"""Rank zero under torchrun: collects outcomes, judges, announces and records.

It is the rank that writes, so its end is the one that must not be silent. Two threads stand by,
both blocked in the kernel: one for signals and the deaths of ranks on this host, one for time.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import ClassVar, Final

import pytest

from gpubench_plugin.launchers import reports as merging
from gpubench_plugin.launchers import signals
from gpubench_plugin.launchers.exit import LONGEST_S, force_exit
from gpubench_plugin.launchers.outcome import JointVerdict, RankOutcome, judge
from gpubench_plugin.launchers.rank_reports import decode
from gpubench_plugin.launchers.signals import ORPHAN_GRACE_S, ExitRequest, ExitWatcher
from gpubench_plugin.launchers.torchrun.peers import Peers, exit_text, offer_stacks
from gpubench_plugin.launchers.torchrun.rank import (
    RankRole,
    RunningTest,
    has_agent,
    session_end_message,
)
from gpubench_plugin.launchers.torchrun.store import OutcomeExchange, wait_until
from gpubench_plugin.records import Json

_TEXTS_KEPT: Final = 8
"""Failing ranks whose tracebacks are in the report; every rank's log has its own."""
_LEAVE_S: Final = 5.0


class RootRank(RankRole):
    """Rank zero; created before the rendezvous so that no signal is lost."""

    margin_s: ClassVar[float] = 0.0

    def __init__(self, session: pytest.Session):
        super().__init__(session, 0)
        self._peers: Peers | None = None
        self._termination = ExitWatcher(self.handle_exit_request)
        signals.die_with_parent(signal.SIGTERM)

    def connect(self, assembly: OutcomeExchange, peers: Peers) -> None:
        """Connect with the other ranks, and watch for deaths on this host."""
        self._assembly = assembly
        self._peers = peers
        offer_stacks(peers.folder, 0)
        self._termination.accept_alerts(peers.bell)
        self._termination.watch({rank: pid for rank, pid in peers.here.items() if rank > 0})

    def handle_missing_ranks(
        self, item: pytest.Item, number: int, cause: str
    ) -> list[pytest.TestReport]:
        """Report the missing ranks, and end the session on every rank."""
        assert self._peers is not None
        self._termination.finish()
        absent_ranks = self.assembly.missing_ranks(number)
        stacks = self._peers.stacks(
            excluded=set(range(self.assembly.size)).difference(absent_ranks)
        )
        outcomes = [
            RankOutcome(rank=r, state="stuck", details=cause, stack=stacks.get(r, ""))
            for r in absent_ranks
        ]
        verdict = judge(outcomes)
        self.end_reason = session_end_message(item, verdict.reason, self.assembly.size)
        self._session.shouldfail = self.end_reason
        self.announce_departure(f"{item.name}: {verdict.reason}")
        return merging.merge_reports(item, outcomes, verdict)

    def exchange_outcomes(
        self, running: RunningTest, reports: Sequence[pytest.TestReport]
    ) -> list[pytest.TestReport]:
        """Wait for the other ranks within the deadline, judge, and announce."""
        running.reports = reports
        self.assembly.mark(f"{running.number}/root")
        own_outcome = RankOutcome(rank=0, state="ended", reports=tuple(reports))
        self._post((), failed=own_outcome.failed is not None)  # for the others to be counted with
        done = self._wait_for_all(running)
        if not done:
            self._termination.finish()
        outcomes = self._outcomes(running, done=done)
        verdict = judge(outcomes)
        if not done:
            self.end_reason = session_end_message(running.item, verdict.reason, len(outcomes))
            self._session.shouldfail = self.end_reason
        joint_reports = merging.merge_reports(running.item, outcomes, verdict)
        leaving = next((outcome for outcome in outcomes if outcome.exit is not None), None)
        self._announce(running.number, verdict, joint_reports, leaving)
        if leaving is not None:
            self._termination.finish()
            pytest.exit(f"rank {leaving.rank}: {leaving.exit}", returncode=leaving.exit_code)
        return joint_reports

    def exit_hung(self) -> None:
        """Collect all stacks, record the timeout, and exit."""
        self._claim_exit()
        assert self.running is not None
        self._end_benchmark(self.running, {})

    def handle_exit_request(self, notice: ExitRequest) -> None:
        """Record a rank's death or an interruption, and exit.

        Between two benchmarks a rank may call too late or leave in peace: the next one will tell.
        """
        if self.running is None and _is_harmless(notice):
            for rank in notice.deaths:
                with suppress(RuntimeError):
                    self.assembly.announce_departure(rank, "it exited with code 0")
            return
        self._claim_exit()
        if notice.orphaned:
            self._end("torchrun has ended", pytest.ExitCode.INTERRUPTED, timeout_s=ORPHAN_GRACE_S)
        elif (notice.deaths or notice.alerted) and self.running is not None:
            self._end_benchmark(self.running, notice.deaths)
        elif notice.deaths:
            details = "; ".join(
                f"rank {r} {exit_text(s)}" for r, s in sorted(notice.deaths.items())
            )
            message = f"{details} between two benchmarks"
            with suppress(RuntimeError):
                message = self.assembly.departed_text() or message
            self._end(message, pytest.ExitCode.TESTS_FAILED)
        elif self._peers is None:
            message = (
                "torchrun stopped this rank before all ranks had connected; see the message of "
                "another rank"
            )
            self._end(message, pytest.ExitCode.TESTS_FAILED)
        else:
            assert notice.signal is not None
            message = f"interrupted by {notice.signal.name}"
            self._end(message, pytest.ExitCode.INTERRUPTED)

    def finish(self) -> None:
        """From now on, deaths and SIGTERM do not stop writing."""
        self._termination.finish()

    def leave(self) -> None:
        """Release the other ranks; the store's host leaves last."""
        if self._assembly is None:
            return
        self._announce_written()
        if not (self.end_reason or has_agent()):
            with suppress(RuntimeError):
                self.assembly.wait_until_others_left(_LEAVE_S)

    def close(self) -> None:
        """Restore the signal handlers and remove the private folder."""
        self._termination.close()
        if self._peers is not None:
            self._peers.close()

    def _wait_for_all(self, running: RunningTest) -> bool:
        """Wait for every rank to finish the benchmark; False on timeout."""
        assembly, clock, deadline = self.assembly, running.clock, running.deadline
        size, seen_failed = assembly.size, 0

        def all_ended() -> bool:
            nonlocal seen_failed
            ended_count, failed_count = assembly.ended(running.number)
            if failed_count > seen_failed:
                deadline.rank_ended(clock.now(), passed=False)
                seen_failed = failed_count
            return ended_count == size

        deadline.rank_ended(clock.now(), passed=True)
        return wait_until(all_ended, lambda: clock.remaining(deadline.at))

    def _outcomes(
        self, running: RunningTest, *, done: bool, deaths: Mapping[int, int | None] = {}
    ) -> list[RankOutcome]:
        """Outcomes on every rank, with stacks of those that did not finish."""
        assert self._peers is not None
        posts = self._peer_records(running.number)
        gave_up = ""
        with suppress(RuntimeError):
            gave_up = "" if done else self.assembly.give_up_reason(running.number)
        stacks = {} if done else self._peers.stacks(excluded=deaths)
        outcomes = []
        for rank in range(self.assembly.size):
            if rank in deaths and not gave_up:
                outcomes.append(
                    RankOutcome(rank=rank, state="died", details=exit_text(deaths[rank]))
                )
            elif rank == 0 and running.reports is not None:
                outcomes.append(RankOutcome(rank=0, state="ended", reports=tuple(running.reports)))
            elif rank in posts:
                outcomes.append(decode(running.item.config, rank, posts[rank]))
            else:
                message, stack = gave_up or running.deadline.message, stacks.get(rank, "")
                outcomes.append(RankOutcome(rank=rank, state="stuck", details=message, stack=stack))
        return outcomes

    def _peer_records(self, number: int) -> dict[int, Json]:
        """Records of other ranks, with a limited number of tracebacks; empty without the store."""
        posts: dict[int, Json] = {}
        with suppress(RuntimeError):
            posts = self.assembly.records(number)
        traceback_bytes = 0
        for post in posts.values():
            for report in post["reports"]:
                traceback_bytes += report["outcome"] == "failed"
                if traceback_bytes > _TEXTS_KEPT:
                    report["longrepr"] = None
        return posts

    def _announce(
        self,
        number: int,
        verdict: JointVerdict,
        reports: Sequence[pytest.TestReport],
        leaving: RankOutcome | None = None,
    ) -> None:
        self.assembly.announce(
            number,
            {
                "outcome": verdict.outcome,
                "reason": verdict.reason,
                "phases": merging.outcomes_of(reports),
                "over": self.end_reason,
                "exit": leaving and f"rank {leaving.rank}: {leaving.exit}",
                "exit_code": leaving and leaving.exit_code,
            },
        )

    def _end_benchmark(self, running: RunningTest, deaths: Mapping[int, int | None]) -> None:
        """Record the benchmark's outcome and exit."""
        outcomes = self._outcomes(running, done=False, deaths=deaths)
        verdict = judge(outcomes)
        if verdict.agree:  # all had ended it when one died
            details = "; ".join(
                f"rank {rank} {exit_text(status)}" for rank, status in deaths.items()
            )
            verdict = JointVerdict(outcome="crashed", reason=details)
        self.end_reason = session_end_message(running.item, verdict.reason, len(outcomes))
        joint_reports = merging.merge_reports(running.item, outcomes, verdict)
        with suppress(RuntimeError):
            self._announce(running.number, verdict, joint_reports)
        self._end(self.end_reason, pytest.ExitCode.TESTS_FAILED, joint_reports)

    def _end(
        self,
        message: str,
        code: pytest.ExitCode,
        reports: Sequence[pytest.TestReport] = (),
        timeout_s: float = LONGEST_S,
    ) -> None:
        self._termination.block_main_thread()
        if self._peers is not None:
            self._peers.close()
        written = self._announce_written
        force_exit(
            self._session,
            reports,
            message=message,
            code=code,
            timeout_s=timeout_s,
            on_written=written,
        )

    def _announce_written(self) -> None:
        """Tell the others that all is written; torchrun kills rank zero once any rank exits."""
        if self._assembly is not None:
            with suppress(RuntimeError):
                self.assembly.mark("written")


def _is_harmless(notice: ExitRequest) -> bool:
    """Whether the event can be ignored while no benchmark runs."""
    regular = all(status == 0 for status in notice.deaths.values())
    return regular and notice.signal is None and not notice.orphaned
