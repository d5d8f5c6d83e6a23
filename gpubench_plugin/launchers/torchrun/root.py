"""Rank zero's part: collect how a benchmark ended on every rank, judge, announce, and record.

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
from gpubench_plugin.launchers.exit import LONGEST_S, end_session
from gpubench_plugin.launchers.outcome import Ending, Verdict, judge
from gpubench_plugin.launchers.rank_reports import decode
from gpubench_plugin.launchers.signals import ORPHAN_S, Notice, Termination
from gpubench_plugin.launchers.torchrun.peers import Peers, offer_stacks, said_of
from gpubench_plugin.launchers.torchrun.rank import Member, Running, has_agent, session_over
from gpubench_plugin.launchers.torchrun.store import Assembly, wait_until
from gpubench_plugin.records import Json

_TEXTS_KEPT: Final = 8
"""Failing ranks whose tracebacks are in the report; every rank's log has its own."""
_LEAVE_S: Final = 5.0


class Root(Member):
    """Rank zero. Made before it has met the others, so that no signal goes unheard."""

    margin_s: ClassVar[float] = 0.0

    def __init__(self, session: pytest.Session):
        super().__init__(session, 0)
        self._peers: Peers | None = None
        self._termination = Termination(self.end_on)
        signals.die_with_parent(signal.SIGTERM)

    def meet(self, assembly: Assembly, peers: Peers) -> None:
        """Know the others from now on, and notice their deaths on this host."""
        self._assembly = assembly
        self._peers = peers
        offer_stacks(peers.folder, 0)
        self._termination.answer(peers.bell)
        self._termination.watch({rank: pid for rank, pid in peers.here.items() if rank > 0})

    def end_not_begun(self, item: pytest.Item, number: int, why: str) -> list[pytest.TestReport]:
        """Say who is missing and where, and end the session on every rank."""
        assert self._peers is not None
        self._termination.finish()
        absent = self.assembly.absent(number)
        stacks = self._peers.stacks(but=set(range(self.assembly.size)).difference(absent))
        found = [Ending(rank=r, state="stuck", told=why, stack=stacks.get(r, "")) for r in absent]
        verdict = judge(found)
        self.over = session_over(item, verdict.reason, self.assembly.size)
        self._session.shouldfail = self.over
        self.part(f"{item.name}: {verdict.reason}")
        return merging.merged(item, found, verdict)

    def agree(
        self, running: Running, reports: Sequence[pytest.TestReport]
    ) -> list[pytest.TestReport]:
        """Wait for the others as long as it makes sense, judge, and tell them."""
        running.reports = reports
        self.assembly.mark(f"{running.number}/root")
        mine = Ending(rank=0, state="ended", reports=tuple(reports))
        self._post((), failed=mine.failed is not None)  # for the others to be counted with
        whole = self._wait_for_all(running)
        if not whole:
            self._termination.finish()
        found = self._endings(running, whole=whole)
        verdict = judge(found)
        if not whole:
            self.over = session_over(running.item, verdict.reason, len(found))
            self._session.shouldfail = self.over
        merged = merging.merged(running.item, found, verdict)
        leaving = next((ending for ending in found if ending.exit is not None), None)
        self._announce(running.number, verdict, merged, leaving)
        if leaving is not None:
            self._termination.finish()
            pytest.exit(f"rank {leaving.rank}: {leaving.exit}", returncode=leaving.exit_code)
        return merged

    def end_hung(self) -> None:
        """Find out where everybody is, record it, and end."""
        self._say_nothing_else()
        assert self.running is not None
        self._end_benchmark(self.running, {})

    def end_on(self, notice: Notice) -> None:
        """Record that a rank died or gave up, or that the run was interrupted, and end.

        Between two benchmarks a rank may call too late or leave in peace: the next one will tell.
        """
        if self.running is None and _is_harmless(notice):
            for rank in notice.deaths:
                with suppress(RuntimeError):
                    self.assembly.part(rank, "it exited with 0")
            return
        self._say_nothing_else()
        if notice.orphaned:
            self._end("torchrun has ended", pytest.ExitCode.INTERRUPTED, within_s=ORPHAN_S)
        elif (notice.deaths or notice.called) and self.running is not None:
            self._end_benchmark(self.running, notice.deaths)
        elif notice.deaths:
            said = "; ".join(f"rank {r} {said_of(s)}" for r, s in sorted(notice.deaths.items()))
            why = f"{said} between two benchmarks"
            with suppress(RuntimeError):
                why = self.assembly.parted() or why
            self._end(why, pytest.ExitCode.TESTS_FAILED)
        elif self._peers is None:
            why = "torchrun ended this rank before all had met; another rank's message says why"
            self._end(why, pytest.ExitCode.TESTS_FAILED)
        else:
            assert notice.signal is not None
            why = f"interrupted by {notice.signal.name}"
            self._end(why, pytest.ExitCode.INTERRUPTED)

    def finish(self) -> None:
        """From now on a death or SIGTERM does not stop the writing."""
        self._termination.finish()

    def leave(self) -> None:
        """Let the others go; who keeps the store waits until they have heard."""
        if self._assembly is None:
            return
        self._tell_written()
        if not (self.over or has_agent()):
            with suppress(RuntimeError):
                self.assembly.wait_until_others_left(_LEAVE_S)

    def close(self) -> None:
        """Put the signal handlers back, and remove the private folder."""
        self._termination.close()
        if self._peers is not None:
            self._peers.close()

    def _wait_for_all(self, running: Running) -> bool:
        """Whether every rank ended the benchmark in time."""
        assembly, clock, deadline = self.assembly, running.clock, running.deadline
        size, seen_failed = assembly.size, 0

        def all_ended() -> bool:
            nonlocal seen_failed
            ended, failed = assembly.ended(running.number)
            if failed > seen_failed:
                deadline.rank_ended(clock.now(), passed=False)
                seen_failed = failed
            return ended == size

        deadline.rank_ended(clock.now(), passed=True)
        return wait_until(all_ended, lambda: clock.left(deadline.at))

    def _endings(
        self, running: Running, *, whole: bool, deaths: Mapping[int, int | None] = {}
    ) -> list[Ending]:
        """What became of the benchmark on every rank, and where those are that did not end it."""
        assert self._peers is not None
        posts = self._posts(running.number)
        gave_up = ""
        with suppress(RuntimeError):
            gave_up = "" if whole else self.assembly.given_up(running.number)
        stacks = {} if whole else self._peers.stacks(but=deaths)
        found = []
        for rank in range(self.assembly.size):
            if rank in deaths and not gave_up:
                found.append(Ending(rank=rank, state="died", told=said_of(deaths[rank])))
            elif rank == 0 and running.reports is not None:
                found.append(Ending(rank=0, state="ended", reports=tuple(running.reports)))
            elif rank in posts:
                found.append(decode(running.item.config, rank, posts[rank]))
            else:
                told, stack = gave_up or running.deadline.why, stacks.get(rank, "")
                found.append(Ending(rank=rank, state="stuck", told=told, stack=stack))
        return found

    def _posts(self, number: int) -> dict[int, Json]:
        """What the others told; of many tracebacks the first few. Nothing without the store."""
        posts: dict[int, Json] = {}
        with suppress(RuntimeError):
            posts = self.assembly.posts(number)
        kept = 0
        for post in posts.values():
            for report in post["reports"]:
                kept += report["outcome"] == "failed"
                if kept > _TEXTS_KEPT:
                    report["longrepr"] = None
        return posts

    def _announce(
        self,
        number: int,
        verdict: Verdict,
        reports: Sequence[pytest.TestReport],
        leaving: Ending | None = None,
    ) -> None:
        self.assembly.announce(
            number,
            {
                "outcome": verdict.outcome,
                "reason": verdict.reason,
                "phases": merging.outcomes_of(reports),
                "over": self.over,
                "exit": leaving and f"rank {leaving.rank}: {leaving.exit}",
                "exit_code": leaving and leaving.exit_code,
            },
        )

    def _end_benchmark(self, running: Running, deaths: Mapping[int, int | None]) -> None:
        """Record what became of the benchmark, and end."""
        found = self._endings(running, whole=False, deaths=deaths)
        verdict = judge(found)
        if verdict.agree:  # all had ended it when one died
            said = "; ".join(f"rank {rank} {said_of(status)}" for rank, status in deaths.items())
            verdict = Verdict(outcome="crashed", reason=said)
        self.over = session_over(running.item, verdict.reason, len(found))
        merged = merging.merged(running.item, found, verdict)
        with suppress(RuntimeError):
            self._announce(running.number, verdict, merged)
        self._end(self.over, pytest.ExitCode.TESTS_FAILED, merged)

    def _end(
        self,
        why: str,
        code: pytest.ExitCode,
        reports: Sequence[pytest.TestReport] = (),
        within_s: float = LONGEST_S,
    ) -> None:
        self._termination.hold()
        if self._peers is not None:
            self._peers.close()
        written = self._tell_written
        end_session(self._session, reports, why=why, code=code, within_s=within_s, written=written)

    def _tell_written(self) -> None:
        """The others may go: torchrun ends rank zero as soon as one does."""
        if self._assembly is not None:
            with suppress(RuntimeError):
                self.assembly.mark("written")


def _is_harmless(notice: Notice) -> bool:
    """Whether there is no reason to end as long as no benchmark runs."""
    regular = all(status == 0 for status in notice.deaths.values())
    return regular and notice.signal is None and not notice.orphaned
