"""The base of a rank's part in a torchrun session, and the adapter to pytest's own runner."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from _pytest.runner import runtestprotocol

from gpubench_plugin.launchers.rank_reports import encode, exit_to_json
from gpubench_plugin.launchers.torchrun.store import Assembly, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from gpubench_plugin.environment import WakingClock
    from gpubench_plugin.launchers.deadlines import Deadline


ROOM: Final[dict[str, Any]] = {"longest": 4000, "captured": False}
"""Small, however much the test printed and measured: there may be thousands of ranks."""


@dataclass(kw_only=True)
class Running:
    """The benchmark that runs, as the ranks speak of it.

    `item` has that `number` on every rank; `reports` are there once it has ended here. `deadline`
    is by the `clock`, which stands still while a rank of this host is stopped.
    """

    item: pytest.Item
    number: int
    clock: WakingClock
    deadline: Deadline
    reports: Sequence[pytest.TestReport] | None = None


class Member(ABC):
    """Base of rank zero's and of another rank's part in the verdicts and in the session's end."""

    margin_s: ClassVar[float]
    """Seconds beyond a benchmark's time after which this rank ends the session."""

    def __init__(self, session: pytest.Session, rank: int):
        self._rank = rank
        self.running: Running | None = None
        self._assembly: Assembly | None = None
        self.over = ""
        self._session = session
        self._last_words = threading.Lock()

    def begin(
        self, item: pytest.Item, number: int, patience_s: float
    ) -> list[pytest.TestReport] | None:
        """Wait until every rank has come to the benchmark: only from then on is it in step.

        None: it may run. Else it cannot, and the session ends; returned is what to log of it.
        """
        assembly = self.assembly
        assembly.begin(number)
        clock = assembly.clock()

        def is_clear() -> bool:
            return assembly.all_began(number) or assembly.has_parted()

        wait_until(is_clear, lambda: clock.left(patience_s + self.margin_s))
        if assembly.all_began(number):
            return None
        if parted := assembly.parted():
            self._session.shouldfail = parted
            return []
        why = f"did not come to it within {patience_s:g} s (measure.timeout_s)"
        return self.end_not_begun(item, number, why)

    def part(self, why: str) -> None:
        """Tell the others that this rank comes to no benchmark any more."""
        if self._assembly is not None:
            with suppress(RuntimeError):
                self._assembly.part(self._rank, why)

    @abstractmethod
    def end_not_begun(self, item: pytest.Item, number: int, why: str) -> list[pytest.TestReport]:
        """Not all ranks came to the benchmark: the reports of it, and the session is to end."""

    @property
    def assembly(self) -> Assembly:
        """The ranks, once they have met."""
        if self._assembly is None:
            raise RuntimeError("the ranks have not met")
        return self._assembly

    def tell_exit(self, error: BaseException) -> None:
        """The test asked to end the whole session: the others need not wait for this rank."""
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
        self.assembly.post(self.running.number, message, failed=failed)

    def _say_nothing_else(self) -> None:
        """Only one thread ends the process; another one stops here."""
        self._last_words.acquire()


def has_agent() -> bool:
    """Whether torchrun's agent keeps the store, so that it outlives the ranks."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def session_over(item: pytest.Item, reason: str, size: int) -> str:
    """Why the session ends with `item`, and how to start one that would not."""
    return (
        f"{item.name}: {reason}; ranks that torchrun started cannot be replaced, so the session "
        f"ends. With pytest --world-size={size}, without torchrun, pytest starts the ranks "
        "itself, replaces them and goes on"
    )


def run(item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
    """Run `item`, and tear down what `nextitem` does not need; its reports, not yet logged.

    The one adapter to pytest's own way to run one test.
    """
    return runtestprotocol(item, log=False, nextitem=nextitem)
