"""What stays in a process until it ends, and need not be looked through for garbage each time."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpubench_plugin.config.case import CASE
from gpubench_plugin.results.outcomes import forget_last

if TYPE_CHECKING:
    from collections.abc import Generator

_GROWTH_BYTES: Final = 16 << 20
"""A benchmark leaves 11 KiB, so that this comes once in 1,500 of them; a model that a cache of one
replaces is larger."""


class Residents:
    """Leaves what is there before a benchmark out of garbage collections.

    There are several around every benchmark: without torch and the reports of all benchmarks so far
    each takes a fraction of a millisecond, however many benchmarks came before.

    What is left out and becomes garbage in a cycle of references stays until all is looked through
    again: when a fixture that several tests shared has ended, since it may have held a model; for
    each file of tests; after an allocation that failed (:func:`failures.free`); and once more
    memory is held than after the last time, since a cache may have let go of a model.

    Somebody else may freeze objects for a purpose of their own. Nobody can tell theirs from ours,
    so at the end they all stay frozen then.
    """

    def __init__(self) -> None:
        self._file: Path | None = None
        self._ended = False
        self._shared = gc.get_freeze_count() > 0
        self._mark: list[None] | None = None
        self._held = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Leave out what is there before a benchmark: nothing of a single test is alive then."""
        if CASE in item.stash:
            self._leave_out(anew=self._ended or item.path != self._file)
            self._file, self._ended = item.path, False
        return (yield)

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """What a fixture of several tests held has been left out, and may be garbage now."""
        self._ended = self._ended or fixturedef.scope != "function"

    def pytest_sessionfinish(self) -> None:
        """Leave the process as it was: what follows is not ours."""
        self._notice_others()
        if self._shared:
            gc.freeze()
        else:
            gc.unfreeze()

    def _leave_out(self, *, anew: bool) -> None:
        self._notice_others()
        forget_last()  # else the variables of a test that failed would be left out, too
        gc.collect()
        held = _held_bytes()
        if anew or held - self._held > _GROWTH_BYTES:
            gc.unfreeze()
            gc.collect()
            held = self._held = _held_bytes()
        self._held = min(self._held, held)
        gc.freeze()
        self._mark = []

    def _notice_others(self) -> None:
        """See whether anybody has frozen what was made since we did: our mark is gone then."""
        if self._mark is not None and not self._shared:
            self._shared = not any(one is self._mark for one in gc.get_objects())


def _held_bytes() -> int:
    """What this process holds: of the host's memory, of which Linux tells, and of a GPU's."""
    torch = sys.modules.get("torch")
    of_device = torch.cuda.memory_allocated() if torch and torch.cuda.is_initialized() else 0
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        return int(of_device)
    return int(of_device) + pages * os.sysconf("SC_PAGE_SIZE")
