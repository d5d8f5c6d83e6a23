"""JSON lines over a socket, whatever the other end does."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from gpubench_plugin.launchers.gang import protocol as module
from gpubench_plugin.launchers.gang.protocol import Link

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def ends() -> Iterator[tuple[Link, socket.socket]]:
    """A wire and the bare socket at its other end."""
    ours, other = socket.socketpair()
    wire = Link(ours)
    yield wire, other
    wire.close()
    other.close()


def test_messages_come_in_order(ends: tuple[Link, socket.socket]) -> None:
    """What one end sends the other receives, also several messages of one read."""
    wire, other = ends
    far = Link(other)

    assert far.send({"a": 1})
    assert far.send({"b": ["ü\n"]})

    assert wire.receive() == {"a": 1}
    assert wire.receive() == {"b": ["ü\n"]}


def test_torn_line_waits_for_its_rest(ends: tuple[Link, socket.socket]) -> None:
    """A message that came in pieces is whole before it is told."""
    wire, other = ends

    other.sendall(b'{"a": 1}\n{"b"')
    assert wire.read_available() == [{"a": 1}]
    other.sendall(b": 2}\n")
    assert wire.read_available() == [{"b": 2}]
    assert wire.is_open


def test_end_of_the_other_end_is_told(ends: tuple[Link, socket.socket]) -> None:
    """What was sent before is received; then there is nothing, and nobody to send to."""
    wire, other = ends
    other.sendall(b'{"last": 1}\n{"torn')
    other.close()

    assert wire.receive() == {"last": 1}
    assert wire.receive() is None
    assert not wire.is_open
    assert not wire.send({"to": "nobody"})


def test_rest_of_a_dead_process_is_received(ends: tuple[Link, socket.socket]) -> None:
    """All that was sent, however much, although something still holds the other end open."""
    wire, other = ends
    far = Link(other)
    said = [{"n": n, "text": "x" * 10_000} for n in range(10)]
    assert all(far.send(message) for message in said)

    assert wire.drain() == said
    assert not wire.is_open


@pytest.mark.parametrize("line", [b"not json\n", b"[1]\n", b"\xff\n"])
def test_what_is_no_message_ends_the_connection(
    ends: tuple[Link, socket.socket], line: bytes
) -> None:
    """An end that does not speak our language is not listened to, and raises no error."""
    wire, other = ends

    other.sendall(line)
    assert wire.receive() is None
    assert not wire.is_open

    other.sendall(line)
    assert wire.read_available() == []


def test_message_without_an_end_ends_the_connection(
    ends: tuple[Link, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is not filled by an end that never ends its line."""
    wire, other = ends
    monkeypatch.setattr(module, "MAX_MESSAGE_BYTES", 1000)

    other.sendall(b"x" * 2000)

    assert wire.read_available() == []
    assert not wire.is_open
