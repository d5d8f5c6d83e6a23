"""SIGTERM and SIGHUP end a session like Ctrl-C: everything measured is written, and once.

A scheduler sends the one, a terminal that is closed the other. Whoever asks often asks twice:
``timeout`` of coreutils sends its signal to the process and to its group, and people press Ctrl-C
again. While pytest is ending, a second one would cost its exit code and the run its status.
"""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

_DEFAULTS: Final[dict[signal.Signals, Any]] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


class Interruption:
    """The role of a process that writes results; a handler that somebody else has set stays.

    A signal that is ignored, as ``nohup`` has it, stays so, too. To be registered after who writes.
    """

    def __init__(self) -> None:
        in_main = threading.current_thread() is threading.main_thread()
        untouched = [n for n, default in _DEFAULTS.items() if signal.getsignal(n) is default]
        self._mine = untouched if in_main else []
        self._asked = self._ends = self._finishes = False
        for number in self._mine:
            signal.signal(number, self._handle)

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """From now on pytest says why it ends, and who asks again is not heard until it has."""
        self._ends = True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, object, object]:
        """Now results are written, and then fixtures torn down, which may hang."""
        self._finishes = True
        return (yield)

    def pytest_unconfigure(self) -> None:
        """Put the handlers back."""
        for number in self._mine:
            signal.signal(number, _DEFAULTS[number])

    def _handle(self, number: int, frame: FrameType | None) -> None:
        __tracebackhide__ = True  # pytest is to show what was interrupted
        before, self._asked = self._asked, True
        if self._ends and not self._finishes:
            return
        if number == signal.SIGINT and not self._finishes:
            raise KeyboardInterrupt  # again, if a test or a debugger has caught the first
        if number != signal.SIGINT and before and self._finishes:  # who insists is not waited for
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        pytest.exit(f"interrupted by {signal.Signals(number).name}", pytest.ExitCode.INTERRUPTED)
