"""The one line that says what is going on while a long benchmark runs."""

from __future__ import annotations

import math
import shutil
import time
from typing import TYPE_CHECKING, Final

from gpubench_plugin.reports.cells import cut, printable
from gpubench_plugin.reports.glyphs import UNICODE

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.reports.glyphs import Glyphs

_CLEAR: Final = "\r\x1b[K"
"""Back to the first column, erase to the end of the line (ECMA-48, EL)."""

_INTERVAL_S: Final = 0.1
"""The eye follows no more than ten changes a second."""


def _terminal_width() -> int:
    return shutil.get_terminal_size().columns


class StatusLine:
    """Rewrites one line of a terminal; where it is not `enabled`, nothing at all is written.

    Args:
        write: takes text to the terminal at once; it must not buffer.
        enabled: whether `write` leads to a TTY.
        glyphs: the signs the terminal can show.
        width: the terminal's columns now; a window may be resized.
        clock: seconds that only grow.
        interval_s: the shortest time between two rewrites.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        enabled: bool,
        *,
        glyphs: Glyphs = UNICODE,
        width: Callable[[], int] = _terminal_width,
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
        """Replace the line by `text`, cut to the width; a text too soon after one is left out."""
        if not self._enabled:
            return
        now = self._clock()
        if now - self._shown_at < self._interval_s:
            return
        self._shown_at = now
        # The last column stays free: some terminals wrap as soon as it is written.
        self._write(_CLEAR + cut(printable(text), self._width() - 1, self._glyphs.ellipsis))

    def clear(self) -> None:
        """Take the line away, so that other output can follow."""
        if self._shown_at > -math.inf:
            self._write(_CLEAR)
            self._shown_at = -math.inf
