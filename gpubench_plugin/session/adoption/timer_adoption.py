"""A timer that waits for the accelerator before it reads the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.session.adoption.timer import Accelerator

_USUAL: Final = "perf_counter"


class SynchronisedTimer:
    """Reads `timer` once `accelerator` has done all it was given.

    Handing work to an accelerator takes microseconds, whatever the work: a clock that is read
    then has timed nothing else. As long as torch has not started the accelerator there is nothing
    to wait for, and each reading looks whether it has by now.
    """

    def __init__(self, timer: Callable[[], float], accelerator: Accelerator) -> None:
        name = getattr(timer, "__name__", str(timer))
        usual = f"{accelerator.kind}_synchronised"
        self.__name__ = usual if name == _USUAL else f"{usual}_{name}"
        self._timer = timer
        self._accelerator = accelerator
        self._waits: tuple[Callable[[], object], ...] = (self._look,)

    def __call__(self) -> float:
        """The reading, in seconds."""
        for wait in self._waits:
            wait()
        return self._timer()

    def refresh(self) -> None:
        """Find out which devices are in use: once per benchmark, since it takes a while."""
        if self._accelerator.is_started:
            self._waits = self._accelerator.waits()

    def _look(self) -> None:
        if self._accelerator.is_started:
            self.refresh()
            for wait in self._waits:
                wait()
