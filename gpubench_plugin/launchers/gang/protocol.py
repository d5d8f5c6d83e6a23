"""Protocol between a gang's controller and its ranks: join information and messages."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpubench_plugin.core.records import Json
from gpubench_plugin.launchers.output import GANG

MAX_MESSAGE_BYTES: Final = 2**26
"""Room for all samples of rank zero; a line without end must not fill the memory."""
_CHUNK_BYTES: Final = 2**16


class Link:
    """One end of a connection; reads block unless the socket is non-blocking.

    A message is a JSON object on one line, over a unix socket. The connection is closed for good
    when the peer is gone, or sends something that is no message or too long.
    """

    def __init__(self, sock: socket.socket):
        self._socket = sock
        self._buffer = b""
        self._send_lock = threading.Lock()
        self.is_open = True

    def fileno(self) -> int:
        """File descriptor, for selectors."""
        return self._socket.fileno()

    def send(self, message: Json) -> bool:
        """Send `message`, from any thread; False if the peer is gone."""
        data = (json.dumps(message) + "\n").encode()
        try:
            with self._send_lock:
                self._socket.sendall(data)
        except OSError:
            return False
        return True

    def receive(self) -> Json | None:
        """Receive the next message; None at end of stream."""
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                return self._parsed(line)
            if not self._read():
                return None

    def read_available(self) -> list[Json]:
        """All complete messages after one read of a readable socket."""
        self._read()
        return self.buffered()

    def drain(self) -> list[Json]:
        """Remaining messages of a dead process, whose child may keep the socket open."""
        self._socket.setblocking(False)
        while self._read():
            pass
        return self.buffered()

    def buffered(self) -> list[Json]:
        """Complete messages that are already buffered."""
        *lines, self._buffer = self._buffer.split(b"\n")
        messages = [self._parsed(line) for line in lines]
        return [message for message in messages if message is not None]

    def close(self) -> None:
        """Close this end, so that the other one reads the end of the stream."""
        self.is_open = False
        with suppress(OSError):
            self._socket.close()

    def _parsed(self, line: bytes) -> Json | None:
        with suppress(ValueError):
            message = json.loads(line)
            if isinstance(message, dict):
                return message
        self.is_open = False
        return None

    def _read(self) -> bool:
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except OSError:
            data = b""
        self._buffer += data
        self.is_open = bool(data) and len(self._buffer) <= MAX_MESSAGE_BYTES
        return self.is_open


_TOKEN: Final = "GPUBENCH_GANG_TOKEN"


@dataclass(frozen=True, kw_only=True)
class JoinInfo:
    """Private folder with a gang's socket, and the token to join it, as passed to each rank."""

    folder: Path
    token: str

    @property
    def socket(self) -> Path:
        """Path of the controller's unix socket."""
        return self.folder / "controller"

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
