"""Base class of a rank's role in a torchrun session."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.launchers.report_transport import encode, exit_to_json
from gpubench_plugin.launchers.torchrun.store import OutcomeExchange
from gpubench_plugin.system.timeout_clock import TimeoutClock, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from gpubench_plugin.launchers.deadlines import Deadline


@dataclass(kw_only=True)
class RunningTest:
    """The running benchmark, which has the same `number` on every rank.

    `reports` are set once it has ended on this rank. `deadline` is a time of the `clock`.
    """

    item: pytest.Item
    number: int
    clock: TimeoutClock
    deadline: Deadline
    reports: Sequence[pytest.TestReport] | None = None


class RankRole(ABC):
    """Base of the roles of rank zero and of the other ranks in verdicts and the session's end."""

    margin_s: ClassVar[float]
    """Seconds after a benchmark's timeout until this rank ends the session."""

    def __init__(self, session: pytest.Session, rank: int):
        self._rank = rank
        self.running: RunningTest | None = None
        self._exchange: OutcomeExchange | None = None
        self.end_reason = ""
        self._session = session
        self._exit_lock = threading.Lock()

    def wait_for_ranks(
        self, item: pytest.Item, number: int, timeout_s: float
    ) -> list[pytest.TestReport] | None:
        """Wait until every rank has reached the benchmark.

        Returns None if all have; otherwise the session ends, and these reports are to be logged.
        """
        exchange = self.exchange
        exchange.announce_arrival(number)
        clock = TimeoutClock()

        def can_proceed() -> bool:
            return exchange.all_arrived(number) or exchange.has_departed()

        wait_until(can_proceed, lambda: clock.remaining(timeout_s + self.margin_s))
        if exchange.all_arrived(number):
            return None
        if departed := exchange.departed_text():
            self._session.shouldfail = departed
            return []
        message = f"did not reach the test within {timeout_s:g} s (measure.timeout_s)"
        return self.handle_missing_ranks(item, number, message)

    def announce_departure(self, cause: str) -> None:
        """Announce that this rank will run no more benchmarks."""
        if self._exchange is not None:
            with suppress(RuntimeError):
                self._exchange.announce_departure(self._rank, cause)

    def end_session(self, item: pytest.Item, reason: str) -> None:
        """Let the session end after `item`, and say how to avoid that."""
        self.end_reason = self._session.shouldfail = (
            f"{item.name}: {reason}; ranks started by torchrun cannot be replaced, so the session "
            f"ends. With pytest --world-size={self.exchange.size} (without torchrun) pytest starts "
            "the ranks, replaces them and continues"
        )

    def finish(self) -> None:  # noqa: B027 # only rank zero is watched
        """Let the main thread end the session from now on."""

    @abstractmethod
    def handle_missing_ranks(
        self, item: pytest.Item, number: int, cause: str
    ) -> list[pytest.TestReport]:
        """Reports for a benchmark that not all ranks reached; ends the session."""

    @property
    def exchange(self) -> OutcomeExchange:
        """The connection to the other ranks."""
        if self._exchange is None:
            raise RuntimeError("the ranks are not connected")
        return self._exchange

    def announce_exit(self, error: BaseException) -> None:
        """Announce that the test requested the session's end, so that no rank waits."""
        if self.running is not None:
            self._post((), failed=True, error=error)

    def _post(
        self,
        reports: Sequence[pytest.TestReport],
        *,
        failed: bool,
        error: BaseException | None = None,
    ) -> None:
        assert self.running is not None
        message = encode(self._session.config, reports)
        if error is not None:
            message |= exit_to_json(error)
        self.exchange.publish_outcome(self.running.number, message, failed=failed)

    def _claim_exit(self) -> None:
        """Ensure that a single thread ends the process; any other blocks here for ever."""
        self._exit_lock.acquire()
