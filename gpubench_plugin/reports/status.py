"""Status line shown while a long benchmark runs."""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from gpubench_plugin.reports.text import cut, encodable, printable

# Down (IND), which scrolls in the last row, and up again (RI): so there is a row below.
_ROOM: Final = "\x1bD\x1bM"
# Save the cursor (DECSC), go to the row below, do not wrap at the last column (DECAWM).
_BEFORE: Final = f"{_ROOM}\x1b7\x1bD\r\x1b[?7l"
# Erase the rest of a longer text (EL), wrap again (DECAWM), and restore the cursor (DECRC).
_AFTER: Final = "\x1b[K\x1b[?7h\x1b8"
_CLEAR: Final = "\x1b[J"  # erase from the cursor to the end of the screen (ED)

# At most ten updates a second: readable, and cheap beside what is measured.
_INTERVAL_S: Final = 0.1


@dataclass
class StatusLine:
    """Rewrites the row below the cursor, which stays where it is.

    So pytest continues its line where it stopped, however long that is. Nothing is written unless
    `enabled`.

    `write` must not buffer.
    """

    write: Callable[[str], object]
    enabled: bool
    _shown_at: float = field(default=-math.inf, init=False)

    def show(self, text: str, *, at_once: bool = False) -> None:
        """Show `text`; updates that follow too quickly are dropped, unless it must be `at_once`."""
        if not self.enabled:
            return
        current = time.monotonic()
        if not at_once and current - self._shown_at < _INTERVAL_S:
            return
        self._shown_at = current
        line = cut(printable(text), shutil.get_terminal_size().columns - 1)
        self.write(f"{_BEFORE}{line}{_AFTER}")

    def clear(self) -> None:
        """Erase the text before other output."""
        if self._shown_at > -math.inf:
            self.write(_CLEAR)
            self._shown_at = -math.inf


def status_line(*, enabled: bool = True) -> StatusLine:
    """Status line on the terminal, if stdout is one, bypassing pytest's output capture."""
    try:
        is_terminal = enabled and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        terminal = os.dup(sys.stdout.fileno()) if is_terminal else None
    except (OSError, ValueError):
        terminal = None

    def write(text: str) -> None:
        if terminal is not None:
            with suppress(OSError):  # a terminal that was closed fails no measurement
                encoding = sys.stdout.encoding or "ascii"
                os.write(terminal, encodable(text, sys.stdout).encode(encoding))

    return StatusLine(write, terminal is not None)
