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


class Wire:
    """One end of a connection. Reading blocks, unless the socket is set not to.

    A message is a JSON object on one line, over a unix socket.

    It is closed for good when the other end is gone, or sends what is no message, or too long.
    """

    def __init__(self, end: socket.socket):
        self._end = end
        self._unread = b""
        self.is_open = True

    def fileno(self) -> int:
        """For selectors."""
        return self._end.fileno()

    def send(self, message: Json) -> bool:
        """Send `message`; whether the other end was there to be told."""
        data = (json.dumps(message) + "\n").encode()
        try:
            self._end.sendall(data)
        except OSError:
            return False
        return True

    def receive(self) -> Json | None:
        """The next message; None when the other end is gone."""
        while True:
            line, newline, rest = self._unread.partition(b"\n")
            if newline:
                self._unread = rest
                return self._parsed(line)
            if not self._read():
                return None

    def available(self) -> list[Json]:
        """All whole messages after one read, for a socket that is known to be readable."""
        self._read()
        return self.waiting()

    def rest(self) -> list[Json]:
        """All whole messages that a dead process left; a child of it may hold its end open yet."""
        self._end.setblocking(False)
        while self._read():
            pass
        return self.waiting()

    def waiting(self) -> list[Json]:
        """All whole messages that were read already, together with an earlier one say."""
        *lines, self._unread = self._unread.split(b"\n")
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
        self._unread += data
        self.is_open = bool(data) and len(self._unread) <= LONGEST
        return self.is_open


_TOKEN: Final = "GPUBENCH_GANG_TOKEN"


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """The private folder of a gang, in which its socket is, and the word that opens it.

    It tells a process that it is a rank of the gang, and how to reach its controller.
    """

    folder: Path
    token: str

    @property
    def socket(self) -> Path:
        """The controller's unix socket."""
        return self.folder / "controller"

    def stack(self, rank: int) -> Path:
        """The file into which `rank` writes where it is when it is asked."""
        return stacks.file_of(self.folder, rank)

    @property
    def flights(self) -> Path:
        """What the names of the files of NCCL's flight recorder begin with."""
        return self.folder / "flight-"

    @property
    def pipes(self) -> Path:
        """What the names of the pipes begin with on which a rank is asked for its flight."""
        return self.folder / "pipe-"

    def to_environment(self) -> dict[str, str]:
        """The variables that carry the invitation to a rank."""
        return {GANG: str(self.folder), _TOKEN: self.token}

    @classmethod
    def accepted(cls, environment: MutableMapping[str, str]) -> Invitation:
        """The invitation in the `environment`, taken out of it: it is not for others."""
        return cls(folder=Path(environment.pop(GANG)), token=environment.pop(_TOKEN, ""))
