"""A terminal's screen, as far as pytest and the status line use one."""

from __future__ import annotations

import re
from typing import Final

_SEQUENCE: Final = re.compile(r"\x1b(?:\[([?0-9;]*)([A-Za-z])|([78DM]))|([^\x1b])", re.DOTALL)

_CUT: Final = re.compile(r"\x1b(?:\[[?0-9;]*)?$")


class Screen:
    """Rows and columns of characters, and the lines that have scrolled out at the top."""

    def __init__(self, rows: int, columns: int):
        self._columns = columns
        self._rows = [self._blank() for _ in range(rows)]
        self._row = self._column = 0
        self._saved = (0, 0)
        self._wraps = True
        self._rest = ""
        self._scrolled: list[str] = []

    @property
    def lines(self) -> list[str]:
        """All lines, those that have scrolled out first."""
        return [*self._scrolled, *("".join(row).rstrip() for row in self._rows)]

    @property
    def below(self) -> str:
        """The row below the cursor's."""
        return "".join([*self._rows, self._blank()][self._row + 1]).rstrip()

    def feed(self, text: str) -> None:
        """Write `text`; a sequence that is cut in two waits for its end."""
        text, self._rest = self._rest + text, ""
        if cut := _CUT.search(text):
            text, self._rest = text[: cut.start()], cut[0]
        for argument, command, escape, character in _SEQUENCE.findall(text):
            if character:
                self._put(character)
            elif escape:
                self._move(escape)
            else:
                self._edit(argument, command)

    def _blank(self) -> list[str]:
        return [" "] * self._columns

    def _move(self, escape: str) -> None:
        if escape == "7":
            self._saved = self._row, self._column
        elif escape == "8":
            self._row, self._column = self._saved
        elif escape == "D":
            self._down()
        else:
            self._row -= 1

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self._rows):
            self._scrolled.append("".join(self._rows.pop(0)).rstrip())
            self._rows.append(self._blank())
            self._row -= 1

    def _edit(self, argument: str, command: str) -> None:
        if command in "JK":
            self._rows[self._row][self._column :] = self._blank()[self._column :]
        if command == "J":
            for row in self._rows[self._row + 1 :]:
                row[:] = self._blank()
        elif command == "A":
            self._row -= int(argument)
        elif argument == "?7":
            self._wraps = command == "h"

    def _put(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._down()
        elif character.isprintable():
            if self._column == self._columns:
                self._column = 0 if self._wraps else self._columns - 1
                if self._wraps:
                    self._down()
            self._rows[self._row][self._column] = character
            self._column += 1
