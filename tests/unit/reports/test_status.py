"""Tests of the status line, with a clock that is set by hand."""

from __future__ import annotations

import time

import pytest

from gpubench_plugin.reports.status import StatusLine

CLEAR = "\x1b[J"


def update(text: str) -> str:
    """Terminal sequence that shows `text` in the row below the cursor, and goes back."""
    return f"\x1bD\x1bM\x1b7\x1bD\r\x1b[?7l{text}\x1b[K\x1b[?7h\x1b8"


class Terminal:
    """Fake terminal with a clock."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.now = 0.0

    def line(self, *, enabled: bool = True) -> StatusLine:
        return StatusLine(self.written.append, enabled)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    made = Terminal()
    monkeypatch.setattr(time, "monotonic", lambda: made.now)
    monkeypatch.setenv("COLUMNS", "20")
    return made


def test_text_replaces_the_line(terminal: Terminal) -> None:
    """Each text is written over the one before."""
    line = terminal.line()
    line.show("one")
    terminal.now = 1.0
    line.show("two")
    assert terminal.written == [update("one"), update("two")]


def test_nothing_is_written_where_there_is_no_terminal(terminal: Terminal) -> None:
    """Nothing is written to a file or a pipe."""
    line = terminal.line(enabled=False)
    line.show("one")
    line.clear()
    assert terminal.written == []


def test_texts_too_soon_are_left_out(terminal: Terminal) -> None:
    """Texts that follow too quickly are dropped, but for those that must be seen."""
    line = terminal.line()
    for tick in range(5):
        terminal.now = tick * 0.06
        line.show(str(tick))
    line.show("now", at_once=True)
    assert terminal.written == [update("0"), update("2"), update("4"), update("now")]


def test_long_text_stays_on_its_line(terminal: Terminal) -> None:
    """A text is cut before the last column, so that the terminal does not wrap."""
    terminal.line().show("a" * 30)
    assert terminal.written == [update("a" * 18 + "…")]


def test_text_cannot_steer_the_terminal(terminal: Terminal) -> None:
    """Control characters in a text are escaped."""
    terminal.line().show("a\x1b[2Jb\nc")
    assert terminal.written == [update("a\\x1b[2Jb c")]


def test_clear_takes_the_line_away_once(terminal: Terminal) -> None:
    """A visible line only; the next text does not wait."""
    line = terminal.line()
    line.clear()
    line.show("one")
    line.clear()
    line.clear()
    line.show("two")
    assert terminal.written == [update("one"), CLEAR, update("two")]
