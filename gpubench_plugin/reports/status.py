"""Status line shown while a long benchmark runs."""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import Final

from gpubench_plugin.reports.text import UNICODE, Glyphs, cut, glyphs_for, printable

_CLEAR: Final = "\x1b[K"
"""Erase from the cursor to the end of the line (ECMA-48, EL)."""
_BEFORE: Final = "\x1b7\x1b[?7l"
"""Save the cursor (DECSC), do not wrap at the last column (DECAWM)."""
_AFTER: Final = f"{_CLEAR}\x1b[?7h\x1b8"
"""Erase the rest of a longer text, wrap again (DECAWM), and restore the cursor (DECRC)."""

_INTERVAL_S: Final = 0.1
"""At most ten updates a second: readable, and cheap beside what is measured."""


class StatusLine:
    """Rewrites the rest of a terminal line after other output, keeping the cursor there.

    So pytest continues its line where it stopped. Nothing is written unless `enabled`.

    `write` must not buffer. `width` is called for each update, since a window may be resized;
    `interval_s` is the shortest time between two updates.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        enabled: bool,
        *,
        glyphs: Glyphs = UNICODE,
        width: Callable[[], int] = lambda: shutil.get_terminal_size().columns,
        clock: Callable[[], float] = time.monotonic,
        interval_s: float = _INTERVAL_S,
    ):
        self._write = write
        self._enabled = enabled
        self._glyphs = glyphs
        self._width = width
        self._clock = clock
        self._interval_s = interval_s
        self._shown_at = -math.inf

    def show(self, text: str) -> None:
        """Show `text`; updates that follow too quickly are dropped."""
        if not self._enabled:
            return
        current = self._clock()
        if current - self._shown_at < self._interval_s:
            return
        self._shown_at = current
        line = cut(printable(text), self._width() - 1, self._glyphs.ellipsis)
        self._write(f"{_BEFORE} {line}{_AFTER}")

    def clear(self) -> None:
        """Erase the text before other output."""
        if self._shown_at > -math.inf:
            self._write(_CLEAR)
            self._shown_at = -math.inf


def status_line() -> StatusLine:
    """Status line on the terminal, bypassing pytest's output capture."""
    try:
        terminal = os.dup(sys.stdout.fileno()) if sys.stdout.isatty() else None
    except (OSError, ValueError):
        terminal = None
    glyphs = glyphs_for(getattr(sys.stdout, "encoding", None))

    def write(text: str) -> None:
        if terminal is not None:
            os.write(terminal, text.encode(sys.stdout.encoding or "utf-8", "replace"))

    return StatusLine(write, terminal is not None, glyphs=glyphs)
