"""End of a session on SIGINT, SIGTERM and SIGHUP."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator, Sequence
from types import FrameType
from typing import Any, Final

import pytest

_DEFAULTS: Final[dict[signal.Signals, Any]] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


class SignalInterrupt:
    """Ends a session on SIGTERM or SIGHUP as on Ctrl-C, writing all results once.

    Such signals often come twice: ``timeout`` of coreutils signals the process and its group, and
    people press Ctrl-C again. While pytest ends, a second one would cost the exit code and the
    run's status. For launchers whose process writes results. Handlers of others, and ignored
    signals (``nohup``), stay.
    """

    _was_requested = _is_ending = _is_finishing_session = False
    _own_signals: Sequence[signal.Signals] = ()

    def handle_signals(self) -> None:
        """Set the handlers, if called in the main thread."""
        if threading.current_thread() is threading.main_thread():
            self._own_signals = [
                n for n, default in _DEFAULTS.items() if signal.getsignal(n) is default
            ]
        for number in self._own_signals:
            signal.signal(number, self._handle)

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """Ignore further signals while pytest handles an interrupt."""
        self._is_ending = True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, object, object]:
        """Allow signals again: after the results, fixture teardown may hang."""
        self._is_finishing_session = True
        return (yield)

    def pytest_unconfigure(self) -> None:
        """Restore the handlers."""
        for number in self._own_signals:
            signal.signal(number, _DEFAULTS[number])

    def _handle(self, number: int, frame: FrameType | None) -> None:
        __tracebackhide__ = True  # for pytest to show the interrupted line
        was_requested, self._was_requested = self._was_requested, True
        if self._is_ending and not self._is_finishing_session:
            return
        if number == signal.SIGINT and not self._is_finishing_session:
            raise KeyboardInterrupt  # again, if a test or a debugger has caught the first
        if number != signal.SIGINT and was_requested and self._is_finishing_session:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        pytest.exit(f"interrupted by {signal.Signals(number).name}", pytest.ExitCode.INTERRUPTED)
