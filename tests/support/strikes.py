"""Operations struck at one of their writes by an error or a signal, which they survive.

A strike falls before a ``write``, ``fsync``, ``ftruncate``, ``rename`` or ``replace``, after half
of a write, or, as a signal only, before a statement or commit of a database. Unlike a kill it
leaves the process to go on, which may do harm: take back, tidy up, write more.
"""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from gpubench_plugin.core.errors import GpubenchError
from tests.support.kill_points import Scenario, copied, named, points, struck

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tests.support.kill_points import Ended

WRITES = ("write", "rest of the write", "fsync", "ftruncate", "rename", "replace")
DATABASE = ("statement", "commit")
FOR_GOOD = 1 << 20
"""More than there are points: from one on, all fail."""


@dataclass(frozen=True)
class Strike:
    """What falls on so many of the points from one on."""

    at: int
    count: int
    number: int
    """Of the error; 0 for Ctrl-C."""

    @classmethod
    def of_seed(cls, random: Random, all_points: list[str]) -> Strike:
        """One of the writes, and what happens to it."""
        of_calls = {
            call: [n for n, point in enumerate(all_points) if point.startswith(f"{call} ")]
            for call in (*WRITES, *DATABASE)
        }
        call = random.choice([call for call, numbers in of_calls.items() if numbers])
        at = random.choice(of_calls[call])
        number = random.choice((0, 0, errno.ENOSPC, errno.EIO)) if call in WRITES else 0
        return cls(at, random.choice((1, 1, FOR_GOOD)) if number else 1, number)

    def __call__(self) -> None:
        if not self.number:
            signal.raise_signal(signal.SIGINT)
        raise OSError(self.number, os.strerror(self.number))


class Struck:
    """Scenarios that are struck by seed: each is prepared once, and its points are counted."""

    def __init__(self, scenarios: Sequence[Scenario], folder: Path):
        self._scenarios = scenarios
        self._folder = folder
        self._copy = folder / "copy"
        self._points: dict[Scenario, list[str]] = {}

    def _prepared(self, scenario: Scenario) -> Path:
        first = self._folder / f"first-{self._scenarios.index(scenario)}"
        if scenario not in self._points:
            first.mkdir()
            scenario.prepare(first)
            copied(first, self._copy)
            self._points[scenario] = points(self._operation(scenario))
        return first

    def survive(self, seed: int) -> None:
        """Assert that nothing which had ended is lost, and that all can be done again."""
        random = Random(seed)
        scenario = random.choice(self._scenarios)
        first = self._prepared(scenario)
        found = self._points[scenario]
        strike = Strike.of_seed(random, found)
        copied(first, self._copy)
        with named(f"seed {seed}: {type(scenario).__name__}, {found[strike.at]}, {strike}"):
            ended = struck(
                self._operation(scenario),
                range(strike.at, strike.at + strike.count),
                _Watched(self._copy, strike),
            )
            scenario.look(self._copy, ended)
            scenario.again(self._copy)
            scenario.verify(self._copy, ended)

    def _operation(self, scenario: Scenario) -> Callable[[Ended], object]:
        def act(ended: Ended) -> None:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                scenario.act(self._copy, ended)
            except (GpubenchError, KeyboardInterrupt, AssertionError):
                pass  # told, by an exit code of a command, which is asserted
            finally:
                _Watched.require()

        return act


class _Watched:
    """A strike, after which each journal must still begin with the whole lines that it had."""

    _lines: Mapping[Path, bytes] = {}

    def __init__(self, folder: Path, strike: Strike):
        self._folder = folder
        self._strike = strike

    def __call__(self) -> None:
        if not _Watched._lines:
            found = {path: path.read_bytes() for path in self._folder.rglob("*.jsonl")}
            _Watched._lines = {p: lines[: lines.rfind(b"\n") + 1] for p, lines in found.items()}
        self._strike()

    @classmethod
    def require(cls) -> None:
        """Whatever is not there has been removed as a whole, by who prunes."""
        lost = [p for p, lines in cls._lines.items() if p.exists() and not _begins(p, lines)]
        if lost:
            raise RuntimeError(f"whole lines were taken back: {lost}")


def _begins(path: Path, lines: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(lines)) == lines
