"""Base class of a rank's role in a torchrun session, and the pytest runner adapter."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from _pytest.runner import runtestprotocol

from gpubench_plugin.launchers.rank_reports import encode, exit_to_json
from gpubench_plugin.launchers.torchrun.store import OutcomeExchange, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from gpubench_plugin.environment import TimeoutClock
    from gpubench_plugin.launchers.deadlines import Deadline


ROOM: Final[dict[str, Any]] = {"longest": 4000, "captured": False}
"""Small, however much the test printed and measured: there may be thousands of ranks."""


@dataclass(kw_only=True)
class RunningTest:
    """The running benchmark.

    `item` has that `number` on every rank; `reports` are there once it has ended here. `deadline`
    is by the `clock`, which stands still while a rank of this host is stopped.
    """

    item: pytest.Item
    number: int
    clock: TimeoutClock
    deadline: Deadline
    reports: Sequence[pytest.TestReport] | None = None


class RankRole(ABC):
    """Base of rank zero's and of another rank's part in the verdicts and in the session's end."""

    margin_s: ClassVar[float]
    """Seconds beyond a benchmark's time after which this rank ends the session."""

    def __init__(self, session: pytest.Session, rank: int):
        self._rank = rank
        self.running: RunningTest | None = None
        self._assembly: OutcomeExchange | None = None
        self.end_reason = ""
        self._session = session
        self._last_words = threading.Lock()

    def wait_for_ranks(
        self, item: pytest.Item, number: int, timeout_s: float
    ) -> list[pytest.TestReport] | None:
        """Wait until every rank has reached the benchmark.

        None: it may run. Else it cannot, and the session ends; returned is what to log of it.
        """
        assembly = self.assembly
        assembly.announce_arrival(number)
        clock = assembly.clock()

        def is_clear() -> bool:
            return assembly.all_arrived(number) or assembly.has_departed()

        wait_until(is_clear, lambda: clock.remaining(timeout_s + self.margin_s))
        if assembly.all_arrived(number):
            return None
        if departed_ranks := assembly.departed_text():
            self._session.shouldfail = departed_ranks
            return []
        message = f"did not reach the test within {timeout_s:g} s (measure.timeout_s)"
        return self.handle_missing_ranks(item, number, message)

    def announce_departure(self, cause: str) -> None:
        """Announce that this rank will run no more benchmarks."""
        if self._assembly is not None:
            with suppress(RuntimeError):
                self._assembly.announce_departure(self._rank, cause)

    @abstractmethod
    def handle_missing_ranks(
        self, item: pytest.Item, number: int, cause: str
    ) -> list[pytest.TestReport]:
        """Reports for a benchmark that not all ranks reached; ends the session."""

    @property
    def assembly(self) -> OutcomeExchange:
        """The connection to the other ranks."""
        if self._assembly is None:
            raise RuntimeError("the ranks are not connected")
        return self._assembly

    def announce_exit(self, error: BaseException) -> None:
        """Announce that the test requested the session's end, so that others do not wait."""
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
        message = encode(self._session.config, reports, **ROOM)
        if error is not None:
            message |= exit_to_json(error)
        self.assembly.publish_outcome(self.running.number, message, failed=failed)

    def _claim_exit(self) -> None:
        """Ensure that a single thread ends the process; others block here."""
        self._last_words.acquire()


def has_agent() -> bool:
    """Whether torchrun's agent hosts the store, so that it outlives the ranks."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def session_end_message(item: pytest.Item, reason: str, size: int) -> str:
    """Message that the session ends with `item`, and how to avoid that."""
    return (
        f"{item.name}: {reason}; ranks started by torchrun cannot be replaced, so the session "
        f"ends. With pytest --world-size={size} (without torchrun) pytest starts the ranks, "
        "replaces them and continues"
    )


def run(item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
    """Run `item` with teardown as needed for `nextitem`; return unlogged reports.

    The one adapter to pytest's own way to run one test.
    """
    return runtestprotocol(item, log=False, nextitem=nextitem)
