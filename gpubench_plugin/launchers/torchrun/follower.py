"""The part of every rank but zero: tell how a benchmark ended here, and hear the verdict."""

from __future__ import annotations

import faulthandler
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, NoReturn, TextIO

import pytest

from gpubench_plugin.launchers import reports as merging
from gpubench_plugin.launchers import signals, stacks
from gpubench_plugin.launchers.exit import end_session
from gpubench_plugin.launchers.outcome import Ending, Verdict
from gpubench_plugin.launchers.signals import Notice, Termination
from gpubench_plugin.launchers.torchrun.peers import offer_stacks, ring
from gpubench_plugin.launchers.torchrun.rank import Member, Running
from gpubench_plugin.launchers.torchrun.store import Assembly, wait_until
from gpubench_plugin.records import Json


class Follower(Member):
    """A rank that prints and writes nothing but its log."""

    margin_s: ClassVar[float] = 5.0  # rank zero is to say what happened

    def __init__(self, session: pytest.Session, rank: int):
        super().__init__(session, rank)
        self._termination = Termination(self.end_on, signals=(signal.SIGINT,))
        signals.die_with_parent()

    def meet(self, assembly: Assembly, folder: Path, log: TextIO) -> None:
        """From now on show where this rank is: in `folder` when asked, in the `log` at its end."""
        self._assembly = assembly
        self._folder = folder
        offer_stacks(folder, self._rank)
        self._before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
        faulthandler.register(signal.SIGTERM, file=log, all_threads=True, chain=True)

    def begin(
        self, item: pytest.Item, number: int, patience_s: float
    ) -> list[pytest.TestReport] | None:
        """As every rank; the store ends with rank zero where that keeps it."""
        try:
            return super().begin(item, number, patience_s)
        except RuntimeError:
            return self.end_not_begun(item, number, "is gone, and with it the store")

    def end_not_begun(self, item: pytest.Item, number: int, why: str) -> list[pytest.TestReport]:
        """Rank zero itself has not come, or it would have ended the session by now."""
        self._say_nothing_else()
        said = f"rank 0 {why}"
        self.part(f"{item.name}: {said}")
        self._end(said, pytest.ExitCode.TESTS_FAILED)

    def agree(
        self, running: Running, reports: Sequence[pytest.TestReport]
    ) -> list[pytest.TestReport]:
        """Tell rank zero, and do as it says; when it does not come, end the session."""
        mine = Ending(rank=self._rank, state="ended", reports=tuple(reports))
        self._post(reports, failed=mine.failed is not None)
        running.deadline.rank_ended(running.clock.now(), passed=mine.failed is None)
        verdict = self._verdict(running)
        if verdict is None:
            self._end_without_root(running, mine)
        if verdict["exit"]:
            pytest.exit(verdict["exit"], returncode=verdict["exit_code"])
        if verdict["over"]:
            self.over = self._session.shouldfail = verdict["over"]
        said = Verdict(outcome=verdict["outcome"], reason=verdict["reason"])
        if not said.agree:
            return merging.merged(running.item, [mine], said)
        if merging.outcomes_of(reports) != verdict["phases"]:
            return merging.alike(running.item, verdict["phases"])
        return list(reports)

    def end_hung(self) -> None:
        """Rank zero should have ended the session: leave the stacks in the log, and go."""
        self._say_nothing_else()
        assert self.running is not None
        why = self.running.deadline.why
        ending = Ending(rank=self._rank, state="stuck", told=why, stack=stacks.here())
        verdict = Verdict(outcome="hang", reason=f"rank {self._rank} {why}")
        reports = merging.merged(self.running.item, [ending], verdict)
        self._end(verdict.reason, pytest.ExitCode.TESTS_FAILED, reports)

    def end_on(self, notice: Notice) -> None:
        """Ctrl-C found this rank deep in C."""
        self._say_nothing_else()
        self._end("interrupted", pytest.ExitCode.INTERRUPTED)

    def finish(self) -> None:
        """Ctrl-C leaves this rank some seconds."""
        self._termination.finish()

    def leave(self) -> None:
        """Wait until rank zero has written everything, unless the session broke off.

        That may be long, since it may have other tests to run: torchrun ends it as soon as another
        rank exits with 1. When it is gone, so is the store, or torchrun ends this process.
        """
        if self._assembly is not None and not self.over:
            with suppress(RuntimeError):
                self.assembly.wait_until_written()

    def close(self) -> None:
        """Put the signal handlers back."""
        self._termination.close()
        if self._assembly is not None:
            faulthandler.unregister(signal.SIGTERM)
            signal.signal(signal.SIGTERM, self._before)

    def _verdict(self, running: Running) -> Json | None:
        """What rank zero announces; None if it does not come to the end of the benchmark.

        Then it is called first: it can still find out where everybody is. On another host it does
        not hear; it will notice the end of this rank.
        """
        number = running.number
        told: Json | None = None

        def is_announced() -> bool:
            nonlocal told
            told = self.assembly.verdict(number)
            return told is not None

        def left() -> float:
            # Once rank zero is there it is the one to wait; the watchdog's time still counts.
            if self.assembly.is_marked(f"{number}/root"):
                return self.margin_s
            return running.clock.left(running.deadline.at)

        with suppress(RuntimeError):  # the store is gone, and with it rank zero
            if not wait_until(is_announced, left):
                self.assembly.give_up(number, running.deadline.why)
                ring(self._folder)
                until = running.clock.now() + self.margin_s
                wait_until(is_announced, lambda: running.clock.left(until))
        return told

    def _end_without_root(self, running: Running, mine: Ending) -> NoReturn:
        verdict = Verdict(outcome="hang", reason=f"rank 0 {running.deadline.why}")
        self._say_nothing_else()
        reports = merging.merged(running.item, [mine], verdict)
        self._end(verdict.reason, pytest.ExitCode.TESTS_FAILED, reports)

    def _end(
        self, why: str, code: pytest.ExitCode, reports: Sequence[pytest.TestReport] = ()
    ) -> NoReturn:
        end_session(self._session, reports, why=f"rank {self._rank}: {why}", code=code)
