"""The role of the process that runs benchmarks alone: none of them may hang without an end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.config.case import CASE
from gpubench_plugin.launchers import reports, stacks
from gpubench_plugin.launchers.deadlines import Deadline, Patience
from gpubench_plugin.launchers.exit import end_session
from gpubench_plugin.launchers.outcome import Ending, judge
from gpubench_plugin.launchers.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Generator

    from gpubench_plugin.config.settings import Settings


class Alone:
    """Ends the session when a benchmark hangs: the process cannot be rid of it otherwise.

    Where ranks run the benchmarks, only `adopted` ones run in this process.
    """

    def __init__(self, settings: Settings, *, adopted: bool = False):
        self._settings = settings
        self._adopted = adopted
        self._watchdog = Watchdog(self._end)
        self._running: tuple[pytest.Item, Deadline] | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Give a benchmark its time, and no more."""
        case = item.stash.get(CASE, None)
        others = case is not None and self._adopted and not case.adopted
        if case is None or others or self._running is not None:
            return (yield)
        patience = Patience.with_case(case, self._settings.timeout_s)
        self._running = item, Deadline(patience, 0.0)
        try:
            with self._watchdog.guarding(patience.timeout_s):
                return (yield)
        finally:
            self._running = None

    def pytest_enter_pdb(self) -> None:
        """Whoever debugs has all the time."""
        self._watchdog.leave_alone()

    def _end(self) -> None:
        assert self._running is not None
        item, deadline = self._running
        endings = [Ending(rank=0, state="stuck", told=deadline.why, stack=stacks.here())]
        end_session(
            item.session,
            reports.merged(item, endings, judge(endings)),
            why=f"{item.name} {deadline.why}; it ran in this process, so the session ends with it. "
            "With --isolate every benchmark has processes of its own, and the session goes on",
            code=pytest.ExitCode.TESTS_FAILED,
        )
