"""The role of every process in a resumed session: leave out what the run has measured already."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection


class Kept:
    """Benchmarks whose earlier numbers are kept, by node id."""

    def __init__(self, ids: Collection[str]):
        self._ids = ids

    def deselect(self, session: pytest.Session) -> None:
        """Take them out of what `session` runs, as if they had not been selected."""
        kept = [item for item in session.items if item.nodeid in self._ids]
        session.items[:] = [item for item in session.items if item.nodeid not in self._ids]
        session.config.hook.pytest_deselected(items=kept)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """A run that has everything is not one for which nothing was collected (exit code 5)."""
        session.testscollected = session.testscollected or len(self._ids)
