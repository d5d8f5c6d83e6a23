"""Connections between the controller and its ranks, over unix sockets on a host or TCP.

Both ends prove that they know the token of an :class:`Invitation`, which does not travel:

1. the controller sends a nonce;
2. the rank answers with its own nonce, its hello and a proof;
3. the controller answers with its proof.

A proof is the HMAC-SHA256 of who proves, both nonces and the hello. Afterwards messages are plain
JSON lines: the start is authenticated, nothing is encrypted or signed later.
"""

from __future__ import annotations

import hmac
import json
import math
import os
import re
import secrets
import selectors
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from gpubench_plugin.core.errors import GangError
from gpubench_plugin.core.records import Json

INVITATION: Final = "GPUBENCH_INVITATION"
"""Environment variable with the invitation of a rank that its controller has started."""
MAX_MESSAGE_BYTES: Final = 2**26
"""Room for all samples of rank zero; a line without end must not fill the memory."""
_CHUNK_BYTES: Final = 2**16

_MAX_UNPROVEN_BYTES: Final = 4096
_MAX_UNPROVEN: Final = 64
_ACCEPTED_AT_ONCE: Final = _MAX_UNPROVEN // 4
"""In a flood, answers are read four times before the peer that sent one is closed."""
_HANDSHAKE_S: Final = 5.0
_JOIN_S: Final = 30.0
_CONNECT_S: Final = 0.5
"""The kernel repeats what a flooded host has dropped after a second: a new try is sooner."""
_RETRY_S: Final = 0.02
_BACKLOG: Final = 1024

_KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""A host that is gone is noticed after a minute."""


class Link:
    """One end of a connection; reads block unless the socket is non-blocking.

    A message is a JSON object on one line of at most `limit` bytes. The connection is closed for
    good when the peer is gone, or sends something that is no message or too long.
    """

    def __init__(self, sock: socket.socket, *, limit: int = MAX_MESSAGE_BYTES):
        self.limit = limit
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
        with suppress(OSError), self._send_lock:
            self._socket.sendall(data)
            return True
        return False

    def receive(self, deadline: float | None = None) -> Json | None:
        """Receive the next message; None at end of stream, or at `deadline` by `monotonic`."""
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                return self._parsed(line)
            if deadline is not None:
                self._socket.settimeout(max(0.0, deadline - monotonic()))
            if not self._read():
                return None

    def read_available(self) -> list[Json]:
        """All complete messages that have arrived."""
        while self._read(socket.MSG_DONTWAIT):
            pass
        return self.buffered()

    def buffered(self) -> list[Json]:
        """Complete messages that are already buffered."""
        *lines, self._buffer = self._buffer.split(b"\n")
        return [message for line in lines if (message := self._parsed(line)) is not None]

    def trust(self) -> None:
        """Let the peer, which has proved itself, send long messages, and wait for them."""
        self.limit = MAX_MESSAGE_BYTES
        self._socket.setblocking(True)
        if self._socket.family == socket.AF_UNIX:
            return
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):  # not on macOS
                self._socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def close(self) -> None:
        """Close this end, so that the other one reads the end of the stream."""
        self.is_open = False
        with suppress(OSError):
            self._socket.close()

    def _parsed(self, line: bytes) -> Json | None:
        with suppress(ValueError, RecursionError):
            message = json.loads(line)
            if isinstance(message, dict):
                return message
        self.is_open = False
        return None

    def _read(self, flags: int = 0) -> bool:
        """Whether more has been read; if not, the link has ended, or would block."""
        try:
            data = self._socket.recv(min(_CHUNK_BYTES, self.limit), flags)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        self._buffer += data
        self.is_open = bool(data) and len(self._buffer) <= self.limit
        return self.is_open


def new_token() -> str:
    """A token for one launch: 256 bits as 64 hexadecimal digits."""
    return secrets.token_hex(32)


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """What a rank needs to connect: its controller's `addresses`, tried in turn, and the `token`.

    An address is ``unix:/path`` or ``tcp:host:port``, with IPv6 as ``tcp:[::1]:port``. A rank that
    `runs_all` runs all tests of its session, plain ones, too.
    """

    addresses: tuple[str, ...]
    token: str = field(repr=False)
    runs_all: bool = False

    @property
    def folder(self) -> Path:
        """The private folder with the unix socket; on another host it does not exist."""
        return Path(self.addresses[0].removeprefix("unix:")).parent

    @property
    def digest(self) -> str:
        """Names the launch without its secret."""
        return sha256(self.token.encode()).hexdigest()[:16]

    def to_text(self) -> str:
        """JSON with the token, for a private channel."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Invitation:
        """The invitation that :meth:`to_text` wrote.

        Raises:
            GangError: it is none.
        """
        with suppress(ValueError, TypeError, KeyError):
            fields = json.loads(text)
            if re.fullmatch("[0-9a-f]{64}", fields["token"]):
                return cls(**{**fields, "addresses": tuple(fields["addresses"])})
        raise GangError("invitation of a rank: allowed: JSON with addresses, token, runs_all")


def connect(invitation: Invitation, hello: Json, timeout_s: float = _JOIN_S) -> Link:
    """Connect to the first address whose controller proves itself, and introduce this rank.

    Tries again until the timeout: a flooded controller closes connections, or gets none, and a
    stopped one answers none. The `hello` may have 3 KiB; looking up a host's name can take longer.

    Raises:
        GangError: no address answered in time, or none with the token.
    """
    deadline = monotonic() + timeout_s
    failures: dict[str, str] = {}
    while True:
        for address in invitation.addresses:
            try:
                link = Link(_opened(address, _CONNECT_S), limit=_MAX_UNPROVEN_BYTES)
            except OSError as error:
                failures[address] = error.strerror or str(error)
                continue
            if _introduced(link, invitation, hello, min(deadline, monotonic() + _HANDSHAKE_S)):
                link.trust()
                return link
            failures[address] = "not proven to be the controller"
            link.close()
        if monotonic() + _RETRY_S >= deadline:
            reasons = ", ".join(f"{address}: {reason}" for address, reason in failures.items())
            raise GangError(f"no controller for this rank within {timeout_s:g} s: {reasons}")
        sleep(_RETRY_S)


def _opened(address: str, timeout_s: float) -> socket.socket:
    scheme, _, place = address.partition(":")
    if scheme == "tcp":
        host, _, port = place.rpartition(":")
        return socket.create_connection((host.strip("[]"), int(port)), timeout_s)
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(timeout_s)
    if error := sock.connect_ex(place):
        sock.close()
        raise OSError(error, os.strerror(error))
    return sock


def _introduced(link: Link, invitation: Invitation, hello: Json, deadline: float) -> bool:
    """Whether both ends have proved themselves until `deadline`."""
    if (challenge := link.receive(deadline)) is None:
        return False
    key = bytes.fromhex(invitation.token)
    transcript = [_text(challenge, "nonce"), secrets.token_hex(32), json.dumps(hello)]
    proof = _proof(key, "rank", transcript)
    link.send({"nonce": transcript[1], "hello": transcript[2], "proof": proof})
    answer = link.receive(deadline)
    return answer is not None and _proves(answer, key, "controller", transcript)


class Reception:
    """The controller's side of `listeners`: admits the ranks that know the `token`.

    A peer has 5 s from its acceptance to prove itself, and at most 64 try at a time: above that
    the one that has tried longest is closed, since a rank answers at once and a flood need not.
    """

    def __init__(self, token: str, listeners: Sequence[socket.socket]):
        self._key = bytes.fromhex(token)
        self._listeners = listeners
        self._unproven: dict[Link, tuple[str, float]] = {}  # nonce and deadline, oldest first
        self._selector = selectors.DefaultSelector()
        for listener in listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)

    def admitted(self, timeout_s: float) -> list[tuple[Link, Json]]:
        """Ranks that have proved themselves within `timeout_s`, with their hellos.

        Returns as soon as there are any. Nothing else serves the peers. A rank that gave up and
        tried again can come twice: then its earlier link has ended.
        """
        deadline = monotonic() + timeout_s
        while True:
            expiry = min((expiry for _, expiry in self._unproven.values()), default=math.inf)
            events = self._selector.select(max(0.0, min(deadline, expiry) - monotonic()))
            ready = [key.fileobj for key, _ in events]
            # Before others are accepted, for whom these might be closed.
            links = [link for link in ready if isinstance(link, Link)]
            admitted = [(link, hello) for link in links if (hello := self._hello(link)) is not None]
            for listener in ready:
                if isinstance(listener, socket.socket):
                    self._accept(listener)
            for link in [link for link, peer in self._unproven.items() if peer[1] <= monotonic()]:
                self._forget(link).close()
            if admitted or monotonic() >= deadline:
                return admitted

    def close(self) -> None:
        """Close the listeners, and the peers that have not proved themselves."""
        for link in [*self._unproven]:
            self._forget(link).close()
        self._selector.close()
        for listener in self._listeners:
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        """Accept and challenge some of those who wait."""
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, _address = listener.accept()
            except OSError:  # nobody is left, or has gone again, or there are no descriptors
                return
            if len(self._unproven) >= _MAX_UNPROVEN:
                self._forget(next(iter(self._unproven))).close()
            sock.setblocking(False)
            link = Link(sock, limit=_MAX_UNPROVEN_BYTES)
            nonce = secrets.token_hex(32)
            self._selector.register(link, selectors.EVENT_READ)
            self._unproven[link] = nonce, monotonic() + _HANDSHAKE_S
            link.send({"nonce": nonce})

    def _hello(self, link: Link) -> Json | None:
        """The hello of a peer that has just proved itself; one that cannot is closed."""
        messages = link.read_available()
        if link.is_open and not messages:
            return None  # the rest is still to come
        nonce, _ = self._unproven[link]
        self._forget(link)
        with suppress(ValueError):
            [answer] = messages
            transcript = [nonce, _text(answer, "nonce"), _text(answer, "hello")]
            if link.is_open and _proves(answer, self._key, "rank", transcript):
                hello: Json = json.loads(transcript[2])
                if link.send({"proof": _proof(self._key, "controller", transcript)}):
                    link.trust()
                    return hello
        link.close()
        return None

    def _forget(self, link: Link) -> Link:
        self._selector.unregister(link)
        del self._unproven[link]
        return link


def _proof(key: bytes, role: str, transcript: Sequence[str]) -> str:
    """Proof of `role` over the controller's nonce, the rank's, and the hello."""
    return hmac.digest(key, json.dumps([role, *transcript]).encode(), "sha256").hex()


def _proves(message: Json, key: bytes, role: str, transcript: Sequence[str]) -> bool:
    proof = _text(message, "proof").encode(errors="replace")
    return hmac.compare_digest(proof, _proof(key, role, transcript).encode())


def _text(message: Json, name: str) -> str:
    """The text under `name`, empty if a stranger sent something else."""
    value = message.get(name)
    return value if isinstance(value, str) else ""


def listen_unix(path: str) -> socket.socket:
    """Listening unix socket at `path`, which should be in a private folder."""
    return socket.create_server(path, family=socket.AF_UNIX, backlog=_BACKLOG)


def listen_tcp(host: str) -> socket.socket:
    """Listening TCP socket on a free port of `host`, an IPv4 or IPv6 address or a name."""
    family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((host, 0), family=family, backlog=_BACKLOG)


def address_of(listener: socket.socket) -> str:
    """Address of `listener` for an :class:`Invitation`."""
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return f"unix:{name}"
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"tcp:{host}:{name[1]}"
