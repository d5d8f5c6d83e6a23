"""Progress display: a rewritten terminal line, or lines in a log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from gpubench_plugin.reports.status import StatusLine
from gpubench_plugin.reports.text import glyphs_for, printable


class Progress:
    """Writes progress to `stream`; on a terminal the launch line is rewritten in place.

    Nothing is written while a launch runs, so as not to disturb the measurement.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._is_terminal = stream.isatty()
        glyphs = glyphs_for(getattr(stream, "encoding", None))
        self._line = StatusLine(self._write, self._is_terminal, glyphs=glyphs, interval_s=0.0)

    def launch(self, text: str) -> None:
        """Show what a starting launch is."""
        if self._is_terminal:
            self._line.show(f"gpubench ab: {text}")
        else:
            self.message(text)

    def message(self, text: str, lines: Iterable[str] = ()) -> None:
        """Print a permanent message, with `lines` indented below."""
        self.clear()
        self._write(f"gpubench ab: {printable(text)}\n")
        for line in lines:
            self._write(f"    {printable(line)}\n")

    def clear(self) -> None:
        """Erase the launch line."""
        self._line.clear()

    def _write(self, text: str) -> None:
        encoding = getattr(self._stream, "encoding", None) or "ascii"
        self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        self._stream.flush()
