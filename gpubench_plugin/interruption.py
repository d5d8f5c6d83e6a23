"""SIGTERM, as a scheduler sends it, ends a session like Ctrl-C: everything measured is written."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from types import FrameType


class Interruption:
    """The role of a process that writes results; a handler that somebody else has set stays."""

    def __init__(self) -> None:
        in_main = threading.current_thread() is threading.main_thread()
        self._is_mine = in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if self._is_mine:
            signal.signal(signal.SIGTERM, self._handle)

    def pytest_unconfigure(self) -> None:
        """Put the handler back."""
        if self._is_mine:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    @staticmethod
    def _handle(number: int, frame: FrameType | None) -> NoReturn:
        # A second one is not waited for.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        pytest.exit(f"interrupted by {signal.Signals(number).name}", pytest.ExitCode.INTERRUPTED)
