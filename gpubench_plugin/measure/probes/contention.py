"""Whether other processes kept this one's threads from running.

A step on several threads waits for its slowest one. Where a neighbour holds a processor, every
parallel region lasts a time slice of the scheduler: steps come out many times too long, and so
evenly that no confidence interval shows it.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from types import TracebackType

CONTENDED: Final = "contended"
"""Flag: threads of this process were ready to run and waited for a processor."""

SHARE: Final = 0.05
"""From this share of the time on that all threads together waited. Alone on its machine, a process
waits for some thousandths of it; beside one busy neighbour per core, for half of it and more."""

_TASKS: Final = Path("/proc/self/task")


class Contention:
    """A context manager that watches the run queue from its entry to its exit.

    Where the system keeps no such account (it is Linux's ``schedstat``: nanoseconds on the
    processor, nanoseconds waiting for one, time slices), nothing is flagged.

    Args:
        tasks: the folder with one folder per thread.
    """

    def __init__(self, tasks: Path = _TASKS):
        self.flags: tuple[str, ...] = ()
        self._tasks = tasks

    def __enter__(self) -> Self:
        self._waited, self._began = _waited_ns(self._tasks), perf_counter_ns()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        lasted = perf_counter_ns() - self._began
        waited = sum(
            total - self._waited.get(thread, 0) for thread, total in _waited_ns(self._tasks).items()
        )
        self.flags = (CONTENDED,) if waited > SHARE * lasted else ()


def _waited_ns(tasks: Path) -> dict[str, int]:
    """Nanoseconds that each thread has waited for a processor; a thread may end meanwhile."""
    waited = {}
    for thread in tasks.glob("*/schedstat"):
        try:
            waited[thread.parent.name] = int(thread.read_text().split()[1])
        except (OSError, ValueError, IndexError):
            continue
    return waited
