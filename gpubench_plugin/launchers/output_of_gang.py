"""What the ranks print while they run, on the user's terminal with the rank before each line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_PAUSE_S: Final = 0.1


class Output:
    """Follows the logs of a gang and passes on whole lines to `write`."""

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
