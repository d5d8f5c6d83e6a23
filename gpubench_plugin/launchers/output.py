"""Rank output: deferred under torchrun, forwarded with a rank prefix in a gang."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TextIO

GANG: Final = "GPUBENCH_GANG"
"""Environment variable with a gang's folder, set in the processes of its ranks."""


def is_secondary(environment: Mapping[str, str]) -> bool:
    """Whether torchrun started this process as a rank other than zero."""
    return environment.get("RANK", "0") != "0" and environment.get("WORLD_SIZE", "1") != "1"


class DeferredStream(io.TextIOBase):
    """Text stream that buffers writes until it gets a target.

    Under torchrun, in a session with benchmarks, only rank zero prints. Until the collection has
    shown whether there are any, the output of other ranks waits here: for the rank's log if there
    are, else for the terminal.
    """

    def __init__(self, terminal: TextIO):
        self.terminal = terminal
        self._buffer: deque[str] = deque()
        self._target: TextIO | None = None

    def release(self, target: TextIO | None = None) -> None:
        """Flush the buffer to `target` or the terminal, and write through from now on."""
        self._target = target or self.terminal
        self._target.writelines(self._buffer)
        self._target.flush()
        self._buffer.clear()

    def discard(self) -> None:
        """Discard the buffer and all later writes."""
        self._target = None
        self._buffer = deque(maxlen=0)

    def write(self, text: str) -> int:
        """Buffer or forward `text`."""
        if self._target is None:
            self._buffer.append(text)
        else:
            self._target.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the target, if set."""
        if self._target is not None:
            self._target.flush()

    def isatty(self) -> bool:
        """Same as the terminal's."""
        return self.terminal.isatty()

    def fileno(self) -> int:
        """Same as the terminal's."""
        return self.terminal.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override] # read-only here
        """Same as the terminal's."""
        return self.terminal.encoding


_POLL_S: Final = 0.1
"""Looks live to the user at ten file reads per rank and second."""


class LogForwarder:
    """Follows a gang's logs and passes complete lines, each with its rank, to `write`."""

    def __init__(self, write: Callable[[str], object]):
        self._write = write
        self._logs: Mapping[int, Path] = {}
        self._offsets: dict[int, int] = {}

    def follow(self, logs: Mapping[int, Path], offsets: Mapping[int, int]) -> None:
        """Start following `logs` by rank from the given byte offsets."""
        self._logs = logs
        self._offsets = dict(offsets)

    def __call__(self) -> float:
        """Forward new lines; return the seconds until the next poll."""
        for rank, log in self._logs.items():
            for line in self._new_lines(rank, log):
                self._write(f"[rank {rank}] {line}\n")
        return _POLL_S

    def finish(self) -> None:
        """Forward the rest, including an unterminated last line, and stop following."""
        self()
        for rank, log in self._logs.items():
            if remaining := _read_from(log, self._offsets[rank]):
                self._write(f"[rank {rank}] {remaining.decode(errors='replace')}\n")
        self._logs = {}

    def _new_lines(self, rank: int, log: Path) -> list[str]:
        complete, newline, _ = _read_from(log, self._offsets[rank]).rpartition(b"\n")
        self._offsets[rank] += len(complete) + len(newline)
        return complete.decode(errors="replace").splitlines() if newline else []


def _read_from(log: Path, offset: int) -> bytes:
    with log.open("rb") as file:
        file.seek(offset)
        return file.read()
