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

    def follow(self, logs: Mapping[int, Path]) -> None:
        """From now on follow these `logs`, by rank, from where they end."""
        self._logs = logs
        self._read = {r: p.stat().st_size if p.exists() else 0 for r, p in logs.items()}

    def __call__(self) -> float:
        """Pass on what is new; the seconds after which it is worth asking again."""
        for rank, log in self._logs.items():
            for line in self._fresh(rank, log):
                self._write(f"[rank {rank}] {line}\n")
        return _PAUSE_S

    def _fresh(self, rank: int, log: Path) -> list[str]:
        with log.open("rb") as file:
            file.seek(self._read[rank])
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read[rank] += len(whole) + len(newline)
        return whole.decode(errors="replace").splitlines() if newline else []
