"""Messages over sockets, and who is admitted to them, whatever others do there."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.core.errors import GangError
from gpubench_plugin.launchers import link as module
from gpubench_plugin.launchers.link import (
    Invitation,
    Link,
    Reception,
    address_of,
    connect,
    listen_tcp,
    listen_unix,
    new_token,
)
from gpubench_plugin.system.scratch import private_folder
from tests.support.exhaustive import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpubench_plugin.core.records import Json

LONG_S = 30.0
"""Of a machine that is busy with something else."""


@pytest.fixture
def ends() -> Iterator[tuple[Link, socket.socket]]:
    """A link and the bare socket at its other end."""
    ours, other = socket.socketpair()
    link = Link(ours)
    yield link, other
    link.close()
    other.close()


def test_messages_come_in_order(ends: tuple[Link, socket.socket]) -> None:
    """What one end sends the other receives, also several messages of one read."""
    link, other = ends
    far = Link(other)

    assert far.send({"a": 1})
    assert far.send({"b": ["ü\n"]})

    assert link.receive() == {"a": 1}
    assert link.receive() == {"b": ["ü\n"]}


def test_torn_line_waits_for_its_rest(ends: tuple[Link, socket.socket]) -> None:
    """A message that came in pieces is whole before it is told."""
    link, other = ends

    other.sendall(b'{"a": 1}\n{"b"')
    assert link.read_available() == [{"a": 1}]
    other.sendall(b": 2}\n")
    assert link.read_available() == [{"b": 2}]
    assert link.is_open


def test_end_of_the_other_end_is_told(ends: tuple[Link, socket.socket]) -> None:
    """What was sent before is received; then there is nothing, and nobody to send to."""
    link, other = ends
    other.sendall(b'{"last": 1}\n{"torn')
    other.close()

    assert link.receive() == {"last": 1}
    assert link.receive() is None
    assert not link.is_open
    assert not link.send({"to": "nobody"})


def test_rest_of_a_dead_process_is_received(ends: tuple[Link, socket.socket]) -> None:
    """All that was sent, however much, although something still holds the other end open."""
    link, other = ends
    far = Link(other)
    said = [{"n": n, "text": "x" * 10_000} for n in range(10)]
    assert all(far.send(message) for message in said)

    assert link.read_available() == said


@pytest.mark.parametrize(
    "line",
    [b"not json\n", b"[1]\n", b"\xff\n", b"[" * 100_000 + b"\n"],
    ids=["text", "list", "bytes", "nested"],
)
def test_what_is_no_message_ends_the_connection(
    ends: tuple[Link, socket.socket], line: bytes
) -> None:
    """An end that does not speak our language is not listened to, and raises no error."""
    link, other = ends

    other.sendall(line)
    assert link.receive() is None
    assert not link.is_open


def test_message_without_an_end_ends_the_connection(ends: tuple[Link, socket.socket]) -> None:
    """Memory is not filled by an end that never ends its line."""
    link, other = ends
    link.limit = 1000

    other.sendall(b"x" * 2000)
    while link.is_open:
        assert link.read_available() == []


class Hosted:
    """A reception at one listener, served by a thread until the test ends."""

    def __init__(self, listener: socket.socket):
        self.invitation = Invitation(addresses=(address_of(listener),), token=new_token())
        self.reception = Reception(self.invitation.token, [listener])
        self.admitted: list[tuple[Link, Json]] = []
        self._family, self._name = listener.family, listener.getsockname()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._ended.is_set():
            self.admitted += self.reception.admitted(0.05)

    def stranger(self) -> Link:
        """Somebody who has connected and does not know the token."""
        sock = socket.socket(self._family)
        sock.settimeout(LONG_S)
        sock.connect(self._name)
        return Link(sock)

    def hellos(self, count: int) -> list[Json]:
        """The hellos of those who were admitted, once there are `count`."""
        deadline = monotonic() + LONG_S
        while len(self.admitted) < count and monotonic() < deadline:
            sleep(0.001)
        return [hello for _, hello in self.admitted]

    def lets_in(self, **hello: Any) -> bool:
        """Whether a rank with this hello gets in, and can talk both ways."""
        before = len(self.admitted)
        rank = connect(self.invitation, hello, LONG_S)
        rank.send({"said": "x" * 10_000})  # longer than anything before the proof
        assert self.hellos(before + 1)[before:] == [hello]
        link = next(link for link, admitted in self.admitted if admitted == hello)
        link.send({"ordered": 1})
        both = link.receive() == {"said": "x" * 10_000} and rank.receive() == {"ordered": 1}
        rank.close()
        return both

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self.reception.close()
        for link, _ in self.admitted:
            link.close()


def has_ipv6() -> bool:
    with suppress(OSError):
        listen_tcp("::1").close()
        return True
    return False


@pytest.fixture(params=["unix", "127.0.0.1", "::1"])
def hosted(request: pytest.FixtureRequest) -> Iterator[Hosted]:
    """A reception at each kind of address."""
    folder = private_folder()
    if request.param == "::1" and not has_ipv6():
        pytest.skip("this host has no IPv6")
    on_unix = request.param == "unix"
    path = str(folder.path / "controller")
    hosted = Hosted(listen_unix(path) if on_unix else listen_tcp(request.param))
    yield hosted
    hosted.close()
    folder.remove()


@pytest.fixture
def local() -> Iterator[Hosted]:
    """A reception at the loopback interface."""
    hosted = Hosted(listen_tcp("127.0.0.1"))
    yield hosted
    hosted.close()


def test_ranks_get_in_with_their_hellos(hosted: Hosted) -> None:
    """Each is known by what it said, and talks over a socket that blocks."""
    assert hosted.lets_in(rank=0, pid=12)
    assert hosted.lets_in(rank=1, pid=13)
    assert hosted.hellos(2) == [{"rank": 0, "pid": 12}, {"rank": 1, "pid": 13}]
    assert all(link._socket.gettimeout() is None for link, _ in hosted.admitted)


def test_many_ranks_get_in_at_once(local: Hosted) -> None:
    """Three times as many as may be on trial at a time; each once."""
    size = 3 * module._MAX_UNPROVEN
    with ThreadPoolExecutor(size) as pool:
        ranks = pool.map(lambda n: connect(local.invitation, {"rank": n}, LONG_S), range(size))
        for rank in ranks:
            rank.close()
    assert sorted(hello["rank"] for hello in local.hellos(size)) == [*range(size)]


def silent(peer: Link, _: Hosted) -> None:
    """Say nothing."""


def half(peer: Link, _: Hosted) -> None:
    """Say a part of a message."""
    peer._socket.sendall(b'{"nonce": "')


def garbage(peer: Link, _: Hosted) -> None:
    """Say what is no message."""
    peer._socket.sendall(b"\xff\x00[1]\n\n")


def nested(peer: Link, _: Hosted) -> None:
    """Say what overflows the stack of a parser."""
    peer._socket.sendall(b"[" * 4000 + b"\n")


def endless(peer: Link, _: Hosted) -> None:
    """Say too much."""
    with suppress(OSError):
        peer._socket.sendall(b"x" * 10_000_000)


def two(peer: Link, _: Hosted) -> None:
    """Say more than one message before the proof was answered."""
    peer._socket.sendall(b'{"nonce": "0"}\n{"nonce": "0"}\n')


def odd(peer: Link, _: Hosted) -> None:
    """Say a message of other types."""
    peer.send({"nonce": [1], "hello": {}, "proof": "\ud800ü"})


def gone(peer: Link, _: Hosted) -> None:
    """Leave at once."""
    peer.close()


def reflecting(peer: Link, hosted: Hosted) -> None:
    """Return the challenge, as nonce, hello and proof."""
    nonce = (peer.receive() or {})["nonce"]
    peer.send({"nonce": nonce, "hello": "{}", "proof": nonce})


HOSTILE = [silent, half, garbage, nested, endless, two, odd, gone, reflecting]


@pytest.mark.parametrize("behave", HOSTILE)
def test_stranger_is_refused_and_harms_no_rank(
    hosted: Hosted, behave: Callable[[Link, Hosted], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank gets in beside a stranger, and the stranger is sent away in the end."""
    monkeypatch.setattr(module, "_HANDSHAKE_S", 0.3)
    peer = hosted.stranger()
    behave(peer, hosted)

    assert hosted.lets_in(rank=0)
    if peer.is_open:
        while (said := peer.receive()) is not None:
            assert [*said] == ["nonce"]
    assert hosted.hellos(1) == [{"rank": 0}]
    peer.close()


def test_silent_crowd_keeps_no_rank_out(local: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who have been silent longest make room, at once."""
    monkeypatch.setattr(module, "_HANDSHAKE_S", 100.0)
    crowd = [local.stranger() for _ in range(module._MAX_UNPROVEN + 1)]
    assert all(peer.receive() is not None for peer in crowd)  # their challenges

    assert local.lets_in(rank=0)
    assert [peer.receive(monotonic() + LONG_S) for peer in crowd[:2]] == [None, None]
    assert len(local.reception._unproven) == module._MAX_UNPROVEN - 1
    for peer in crowd:
        peer.close()


def test_slow_talker_has_no_more_time(local: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever dribbles in, the time to prove oneself ends."""
    monkeypatch.setattr(module, "_HANDSHAKE_S", 0.3)
    peer = local.stranger()
    assert peer.receive() is not None  # its challenge
    peer._socket.settimeout(0.05)
    with suppress(ConnectionError):
        for _ in range(100):
            peer._socket.sendall(b" ")
            with suppress(TimeoutError):
                assert peer._socket.recv(1000) == b""
                break
        else:
            pytest.fail("the slow talker is still listened to")
    assert local.lets_in(rank=0)
    peer.close()


class Proxy:
    """Somebody between a rank and its controller, who sees what they say."""

    def __init__(self, hosted: Hosted):
        self.said: list[bytes] = []
        self._listener = listen_tcp("127.0.0.1")
        invitation = Invitation(
            addresses=(address_of(self._listener),), token=hosted.invitation.token
        )
        with ThreadPoolExecutor(1) as pool:
            rank = pool.submit(connect, invitation, {"rank": 0}, LONG_S)
            near, _ = self._listener.accept()
            far = hosted.stranger()._socket
            for source, target in ((far, near), (near, far), (far, near)):
                self.said.append(source.recv(10_000))
                target.sendall(self.said[-1])
            rank.result().close()
        for sock in (near, far, self._listener):
            sock.close()


def test_token_does_not_travel_and_what_travels_opens_nothing_later(local: Hosted) -> None:
    """A handshake that somebody saw proves nothing when it is repeated."""
    seen = Proxy(local)
    assert len(seen.said) == 3
    assert local.invitation.token not in b"".join(seen.said).decode()
    assert bytes.fromhex(local.invitation.token) not in b"".join(seen.said)

    peer = local.stranger()
    peer._socket.sendall(seen.said[1])
    assert peer.receive() is not None  # its challenge
    assert peer.receive() is None
    peer.close()
    assert local.lets_in(rank=1)
    assert local.hellos(2) == [{"rank": 0}, {"rank": 1}]


def test_hello_cannot_be_changed_on_its_way(local: Hosted) -> None:
    """A rank's proof covers what it says of itself."""
    peer = local.stranger()
    nonce = (peer.receive() or {})["nonce"]
    key = bytes.fromhex(local.invitation.token)
    proof = module._proof(key, "rank", [nonce, "n", '{"rank": 0}'])
    peer.send({"nonce": "n", "hello": '{"rank": 1}', "proof": proof})
    assert peer.receive() is None
    peer.close()
    assert local.admitted == []


def test_controller_is_not_proven_by_a_rank(local: Hosted) -> None:
    """A stranger who returns a rank's own proof is not taken for its controller."""
    listener = listen_tcp("127.0.0.1")
    invitation = Invitation(addresses=(address_of(listener),), token=local.invitation.token)

    def reflect() -> None:
        with suppress(OSError):
            while True:
                sock, _ = listener.accept()
                peer = Link(sock)
                peer.send({"nonce": "0" * 64})
                peer.send({"proof": (peer.receive() or {}).get("proof")})
                peer.receive()
                peer.close()

    thread = threading.Thread(target=reflect)
    thread.start()
    with pytest.raises(GangError, match=address_of(listener)):
        connect(invitation, {"rank": 0}, 0.3)
    listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    listener.close()


def test_wrong_token_is_refused_in_one_line_without_it(hosted: Hosted) -> None:
    """The error names the address; neither token is in it, nor in a representation."""
    wrong = Invitation(addresses=hosted.invitation.addresses, token=new_token())
    with pytest.raises(GangError) as refused:
        connect(wrong, {"rank": 0}, 0.3)
    text = str(refused.value)
    assert hosted.invitation.addresses[0] in text
    assert len(text.splitlines()) == 1
    for written in (text, repr(wrong), repr(refused.value.__context__), repr(hosted.reception)):
        assert wrong.token not in written
        assert hosted.invitation.token not in written
    assert hosted.admitted == []
    assert hosted.lets_in(rank=0)


def test_addresses_are_tried_in_turn(local: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    """One where nobody listens, one without an answer and an unknown name delay a rank only."""
    silent = listen_tcp("127.0.0.1")
    addresses = ("unix:/nonexistent/controller", address_of(silent), *local.invitation.addresses)
    invitation = Invitation(addresses=addresses, token=local.invitation.token)
    monkeypatch.setattr(module, "_HANDSHAKE_S", 0.5)
    connect(invitation, {"rank": 0}).close()
    silent.close()

    with pytest.raises(GangError, match="unix:/nonexistent/controller: No such file"):
        connect(Invitation(addresses=addresses[:1], token=new_token()), {"rank": 0}, 0.1)


FLOOD = """
import socket, sys
family, name, speech = int(sys.argv[1]), eval(sys.argv[2]), sys.argv[3].encode()
opened = []
while True:
    sock = socket.socket(family)
    sock.setblocking(False)
    try:
        sock.connect(name)
    except BlockingIOError:
        pass
    except OSError:
        continue
    try:
        sock.send(speech)
    except OSError:
        pass
    opened.append(sock)
    if len(opened) == 1:
        print(flush=True)
    if len(opened) > 500:
        opened.pop(0).close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("speech", shown("", exhaustively=['{"nonce']))
def test_rank_gets_in_during_a_flood(hosted: Hosted, speech: str) -> None:
    """Two processes that connect without a pause keep no rank out."""
    listener = hosted.reception._listeners[0]
    argv = [str(int(listener.family)), repr(listener.getsockname()), speech]
    floods = [
        subprocess.Popen([sys.executable, "-c", FLOOD, *argv], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        for flood in floods:
            assert flood.stdout is not None
            flood.stdout.readline()
        for rank in range(5):
            connect(hosted.invitation, {"rank": rank}).close()
        assert all(flood.poll() is None for flood in floods)
        assert len(hosted.reception._unproven) <= module._MAX_UNPROVEN
    finally:
        for flood in floods:
            flood.kill()
            flood.communicate()
    assert {hello["rank"] for hello in hosted.hellos(5)} == {*range(5)}


def test_invitation_is_what_it_was_after_its_way_as_text() -> None:
    """Addresses, token and the flag are kept; the token shows in no representation."""
    invitation = Invitation(addresses=("unix:/a", "tcp:[::1]:2"), token=new_token(), runs_all=True)
    assert Invitation.from_text(invitation.to_text()) == invitation
    assert invitation.token not in repr(invitation)


@pytest.mark.parametrize(
    "changes",
    [{"token": "secret"}, {"token": 5}, {"addresses": None}, {"more": 1}],
    ids="".join,
)
def test_malformed_invitation_is_refused(changes: Json) -> None:
    """The error names the fields that are allowed, and nothing of the text."""
    fields = json.loads(Invitation(addresses=("unix:/a",), token=new_token()).to_text())
    for text in (json.dumps({**fields, **changes}), "[]", "not json"):
        with pytest.raises(GangError, match=r"addresses, token, runs_all") as refused:
            Invitation.from_text(text)
        assert refused.value.__cause__ is None
        assert fields["token"] not in str(refused.value)
        assert "secret" not in str(refused.value)
