"""What stays in a process until it ends, and need not be looked through for garbage each time."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.cases import CASE

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


class Residents:
    """Leaves modules, torch's above all, out of garbage collections.

    There are several around every benchmark; without torch and what came after it each takes
    milliseconds, not a fifth of a second. What is left out is decided anew for each file of tests,
    when nothing is alive that fixtures of the one before held: so a model in a cycle of references
    is not kept for longer than its file.
    """

    def __init__(self) -> None:
        self._file: Path | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Before the first benchmark of a file, leave out what is there."""
        if CASE in item.stash and item.path != self._file:
            self._file = item.path
            gc.unfreeze()
            gc.collect()
            gc.freeze()
        return (yield)

    def pytest_sessionfinish(self) -> None:
        """Leave the process as it was: what follows is not ours."""
        gc.unfreeze()
