"""The output of ranks: held back under torchrun, shown with the rank before each line in a gang."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TextIO

GANG: Final = "GPUBENCH_GANG"
"""Names the folder of a gang; its presence makes a process a rank of that gang."""


def is_secondary(environment: Mapping[str, str]) -> bool:
    """Whether torchrun started this process as another rank than zero."""
    return environment.get("RANK", "0") != "0" and environment.get("WORLD_SIZE", "1") != "1"


class Valve(io.TextIOBase):
    """A text stream that holds what is written to it until it is given a target.

    Under torchrun rank zero alone prints. Whether a session has benchmarks is known only after
    collection, so the output of the other ranks is held back until then: a session without
    benchmarks gets it printed, one with benchmarks has it written to the rank's log.
    """

    def __init__(self, terminal: TextIO):
        self.terminal = terminal
        self._held: deque[str] = deque()
        self._target: TextIO | None = None

    def release(self, target: TextIO | None = None) -> None:
        """Write what was held, and from now on everything, to `target` or to the terminal."""
        self._target = target or self.terminal
        self._target.writelines(self._held)
        self._target.flush()
        self._held.clear()

    def close_for_good(self) -> None:
        """Forget what was held, and whatever is written from now on."""
        self._target = None
        self._held = deque(maxlen=0)

    def write(self, text: str) -> int:
        """Hold or pass on `text`."""
        if self._target is None:
            self._held.append(text)
        else:
            self._target.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the target, if there is one yet."""
        if self._target is not None:
            self._target.flush()

    def isatty(self) -> bool:
        """As the terminal."""
        return self.terminal.isatty()

    def fileno(self) -> int:
        """As the terminal."""
        return self.terminal.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override] # read-only here
        """As the terminal."""
        return self.terminal.encoding


_PAUSE_S: Final = 0.1


class Output:
    """Follows the logs of a gang and passes on whole lines to `write`.

    So the user sees on the terminal what the ranks print while they run, each line with its rank.
    """

    def __init__(self, write: Callable[[str], object]):
        self._write = write
        self._logs: Mapping[int, Path] = {}
        self._read: dict[int, int] = {}

    def follow(self, logs: Mapping[int, Path], beginnings: Mapping[int, int]) -> None:
        """From now on follow these `logs`, by rank, from the byte where each rank begins."""
        self._logs = logs
        self._read = dict(beginnings)

    def __call__(self) -> float:
        """Pass on what is new; the seconds after which it is worth asking again."""
        for rank, log in self._logs.items():
            for line in self._fresh(rank, log):
                self._write(f"[rank {rank}] {line}\n")
        return _PAUSE_S

    def finish(self) -> None:
        """Pass on what is left, also a last line without an end; then follow nothing."""
        self()
        for rank, log in self._logs.items():
            if rest := _text(log, self._read[rank]):
                self._write(f"[rank {rank}] {rest.decode(errors='replace')}\n")
        self._logs = {}

    def _fresh(self, rank: int, log: Path) -> list[str]:
        whole, newline, _ = _text(log, self._read[rank]).rpartition(b"\n")
        self._read[rank] += len(whole) + len(newline)
        return whole.decode(errors="replace").splitlines() if newline else []


def _text(log: Path, since: int) -> bytes:
    with log.open("rb") as file:
        file.seek(since)
        return file.read()
