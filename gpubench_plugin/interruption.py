"""SIGTERM and SIGHUP end a session like Ctrl-C: everything measured is written, and once.

A scheduler sends the one, a terminal that is closed the other. Whoever asks often asks twice:
``timeout`` of coreutils sends its signal to the process and to its group, and people press Ctrl-C
again. pytest itself would lose its exit code, and the run its status, over the second one.
"""

from __future__ import annotations

import signal
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

SAME_S: Final = 1.0
"""Signals that come within this time of the first ask for the same; later ones insist."""
_DEFAULTS: Final[dict[signal.Signals, Any]] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


class Interruption:
    """The role of a process that writes results; a handler that somebody else has set stays.

    A signal that is ignored, as ``nohup`` has it, stays so, too.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._asked_at: float | None = None
        self._ends = False
        in_main = threading.current_thread() is threading.main_thread()
        self._mine = [n for n, default in _DEFAULTS.items() if signal.getsignal(n) is default]
        self._mine = self._mine if in_main else []
        for number in self._mine:
            signal.signal(number, self._handle)

    def pytest_keyboard_interrupt(self) -> None:
        """From now on the session is ending."""
        self._ends = True

    def pytest_unconfigure(self) -> None:
        """Put the handlers back."""
        for number in self._mine:
            signal.signal(number, _DEFAULTS[number])

    def _handle(self, number: int, frame: FrameType | None) -> None:
        __tracebackhide__ = True  # pytest is to show what was interrupted
        now, before = self._clock(), self._asked_at
        if before is not None and now - before < SAME_S:
            return
        self._asked_at = now
        if number == signal.SIGINT and not self._ends:
            raise KeyboardInterrupt  # again, if a test or a debugger has caught the first
        if number != signal.SIGINT and before is not None:  # who insists is not waited for
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        pytest.exit(f"interrupted by {signal.Signals(number).name}", pytest.ExitCode.INTERRUPTED)
