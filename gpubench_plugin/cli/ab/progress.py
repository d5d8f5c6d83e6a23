"""What is going on, for the one who waits: a line that is rewritten, or lines in a log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TextIO

from gpubench_plugin.cli.ab.schedule import REHEARSAL
from gpubench_plugin.cli.ab.sides import SideName
from gpubench_plugin.environment import counted
from gpubench_plugin.reports import StatusLine, glyphs_for, printable


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A launch that begins: number `launch` of the `launches` that there may be.

    A pair is measured `again` where its first launches do not count, or are lost. `benchmarks` is
    how many run, None: all. `left_s` is the longest that all launches take, `likely_s` how long
    they take if noise goes on as it is; None where nobody knows.
    """

    pair: int
    pairs: int
    side: SideName
    launch: int
    launches: int
    again: bool = False
    benchmarks: int | None = None
    left_s: float | None = None
    likely_s: float | None = None


class Progress:
    """Writes to `stream`; where that is a terminal, the line of the launch is rewritten.

    Nothing is written while a launch runs: the machine belongs to what is measured.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._is_terminal = stream.isatty()
        glyphs = glyphs_for(getattr(stream, "encoding", None))
        self._line = StatusLine(self._write, self._is_terminal, glyphs=glyphs, interval_s=0.0)

    def launch(self, turn: Turn) -> None:
        """A launch begins."""
        text = f"gpubench ab: {', '.join(_in_words(turn))}"
        if self._is_terminal:
            self._line.show(text)
        else:
            self._write(f"{printable(text)}\n")

    def say(self, text: str, lines: Iterable[str] = ()) -> None:
        """Something that stays, with the `lines` that belong to it, indented."""
        self.clear()
        self._write(f"gpubench ab: {printable(text)}\n")
        for line in lines:
            self._write(f"    {printable(line)}\n")

    def clear(self) -> None:
        """Take the line of the launch away."""
        self._line.clear()

    def _write(self, text: str) -> None:
        encoding = getattr(self._stream, "encoding", None) or "ascii"
        self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        self._stream.flush()


def _in_words(turn: Turn) -> Iterator[str]:
    """``launch 13 of 32, pair 6 of at most 15, head, 3 benchmarks, at most 12 min left``."""
    pair = f"pair {turn.pair} of at most {turn.pairs}"
    yield f"launch {turn.launch} of {turn.launches}"
    yield ("rehearsal" if turn.pair == REHEARSAL else pair) + " again" * turn.again
    yield turn.side
    if turn.benchmarks is not None:
        yield counted(turn.benchmarks, "benchmark")
    if turn.left_s is not None:
        yield f"at most {duration(turn.left_s)} left"
    if turn.likely_s is not None:
        yield f"likely {duration(turn.likely_s)}"


def duration(seconds: float) -> str:
    """`seconds` as one reads a clock: ``40 s``, ``3 min``, ``1 h 20 min``."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
