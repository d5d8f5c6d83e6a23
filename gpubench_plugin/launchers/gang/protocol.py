"""The protocol between a gang's controller and its ranks: invitation and messages."""

from __future__ import annotations

import json
import socket
from collections.abc import MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpubench_plugin.launchers import stacks
from gpubench_plugin.launchers.output import GANG
from gpubench_plugin.records import Json

LONGEST: Final = 2**26
"""Bytes in one message."""

_CHUNK: Final = 2**16


class Link:
    """One end of a connection; reads block unless the socket is non-blocking.

    A message is a JSON object on one line, over a unix socket.

    It is closed for good when the other end is gone, or sends what is no message, or too long.
    """

    def __init__(self, end: socket.socket):
        self._end = end
        self._buffer = b""
        self.is_open = True

    def fileno(self) -> int:
        """File descriptor, for selectors."""
        return self._end.fileno()

    def send(self, message: Json) -> bool:
        """Send `message`; False if the peer is gone."""
        data = (json.dumps(message) + "\n").encode()
        try:
            self._end.sendall(data)
        except OSError:
            return False
        return True

    def receive(self) -> Json | None:
        """Receive the next message; None at end of stream."""
        while True:
            line, newline, remaining_bytes = self._buffer.partition(b"\n")
            if newline:
                self._buffer = remaining_bytes
                return self._parsed(line)
            if not self._read():
                return None

    def read_available(self) -> list[Json]:
        """All complete messages after one read of a readable socket."""
        self._read()
        return self.buffered()

    def drain(self) -> list[Json]:
        """Remaining messages of a dead process, whose child may keep the socket open."""
        self._end.setblocking(False)
        while self._read():
            pass
        return self.buffered()

    def buffered(self) -> list[Json]:
        """Complete messages that are already buffered."""
        *lines, self._buffer = self._buffer.split(b"\n")
        messages = [self._parsed(line) for line in lines]
        return [message for message in messages if message is not None]

    def close(self) -> None:
        """Close this end."""
        self.is_open = False
        with suppress(OSError):
            self._end.close()

    def _parsed(self, line: bytes) -> Json | None:
        with suppress(ValueError):
            message = json.loads(line)
            if isinstance(message, dict):
                return message
        self.is_open = False
        return None

    def _read(self) -> bool:
        try:
            data = self._end.recv(_CHUNK)
        except OSError:
            data = b""
        self._buffer += data
        self.is_open = bool(data) and len(self._buffer) <= LONGEST
        return self.is_open


_TOKEN: Final = "GPUBENCH_GANG_TOKEN"


@dataclass(frozen=True, kw_only=True)
class JoinInfo:
    """Private folder with a gang's socket, and the token to join it.

    It tells a process that it is a rank of the gang, and how to reach its controller.
    """

    folder: Path
    token: str

    @property
    def socket(self) -> Path:
        """Path of the controller's unix socket."""
        return self.folder / "controller"

    def stack(self, rank: int) -> Path:
        """File for the stacks of `rank`."""
        return stacks.file_of(self.folder, rank)

    @property
    def dump_prefix(self) -> Path:
        """Path prefix of NCCL flight recorder dumps."""
        return self.folder / "flight-"

    @property
    def pipe_prefix(self) -> Path:
        """Path prefix of the pipes that trigger a dump."""
        return self.folder / "pipe-"

    def to_environment(self) -> dict[str, str]:
        """Environment variables that pass the join information to a rank."""
        return {GANG: str(self.folder), _TOKEN: self.token}

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> JoinInfo:
        """Take the join information out of `environment`."""
        return cls(folder=Path(environment.pop(GANG)), token=environment.pop(_TOKEN, ""))
