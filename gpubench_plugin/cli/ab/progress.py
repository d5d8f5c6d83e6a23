"""Progress display: a rewritten terminal line, or lines in a log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TextIO

from gpubench_plugin.cli.ab.sides import SideName
from gpubench_plugin.cli.ab.state import WARMUP_PAIR
from gpubench_plugin.core.format import counted, rough_duration
from gpubench_plugin.reports.status import StatusLine
from gpubench_plugin.reports.text import glyphs_for, printable


@dataclass(frozen=True, kw_only=True)
class LaunchStatus:
    """Status of a starting launch: number `launch` of at most `launches`.

    `is_repeat`: the pair's first launches were disturbed, failed or lost. `benchmarks` run, None
    for all. `left_s` is the time until the last pair, `expected_s` that until the expected
    decision; None if unknown.
    """

    pair: int
    pairs: int
    side: SideName
    launch: int
    launches: int
    is_repeat: bool = False
    benchmarks: int | None = None
    left_s: float | None = None
    expected_s: float | None = None


class Progress:
    """Writes progress to `stream`; on a terminal the launch line is rewritten in place.

    Nothing is written while a launch runs, so as not to disturb the measurement.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._is_terminal = stream.isatty()
        glyphs = glyphs_for(getattr(stream, "encoding", None))
        self._line = StatusLine(self._write, self._is_terminal, glyphs=glyphs, interval_s=0.0)

    def launch(self, turn: LaunchStatus) -> None:
        """Show that a launch starts."""
        text = f"gpubench ab: {', '.join(_status_parts(turn))}"
        if self._is_terminal:
            self._line.show(text)
        else:
            self._write(f"{printable(text)}\n")

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


def _status_parts(turn: LaunchStatus) -> Iterator[str]:
    """``launch 13 of 32, pair 6 of at most 15, head, 3 benchmarks, at most 12 min left``."""
    pair = f"pair {turn.pair} of at most {turn.pairs}"
    yield f"launch {turn.launch} of {turn.launches}"
    yield ("warm-up pair" if turn.pair == WARMUP_PAIR else pair) + " (repeated)" * turn.is_repeat
    yield turn.side
    if turn.benchmarks is not None:
        yield counted(turn.benchmarks, "benchmark")
    if turn.left_s is not None:
        yield f"at most {rough_duration(turn.left_s)} left"
    if turn.expected_s is not None:
        yield f"about {rough_duration(turn.expected_s)} expected"
