"""Threads of our own that wait beside a benchmark; a report of where a process hangs omits them.

faulthandler names a thread by its identity alone, so each of them says which one it has, and when
it ends: the system gives the number to another thread then.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

_NOTE: Final = re.compile(r"^helper thread (0x[0-9a-f]+) (begins|ends)\n", re.MULTILINE)
_HEAD: Final = re.compile(r"^(?:Current thread|Thread) (0x[0-9a-f]+)\b")

_idents: set[int] = set()
_descriptors: list[int] = []


class HelperThread(threading.Thread):
    """A daemon thread that calls `target` and is known as a helper until it ends."""

    def __init__(self, name: str, target: Callable[..., object], *arguments: Any):
        super().__init__(name=name, target=target, args=arguments, daemon=True)

    def run(self) -> None:
        """What the new thread does."""
        ident = threading.get_ident()
        _idents.add(ident)
        _note(ident, "begins")
        try:
            super().run()
        finally:
            _note(ident, "ends")
            _idents.discard(ident)


def note_in(descriptor: int) -> None:
    """From now on, write into the open file which threads are helpers, beside what it is for."""
    _descriptors.append(descriptor)
    for ident in tuple(_idents):
        _note(ident, "begins")


def idents_here() -> frozenset[int]:
    """The identities of the helpers of this process."""
    return frozenset(_idents)


def idents_noted(text: str) -> frozenset[int]:
    """The identities of the helpers that were not over at the end of such a file's `text`."""
    running: set[int] = set()
    for ident, what in _NOTE.findall(text):
        (running.add if what == "begins" else running.discard)(int(ident, 16))
    return frozenset(running)


def without_helpers(stacks: str, idents: frozenset[int]) -> str:
    """The `stacks` that faulthandler wrote, less the notes and the threads with those `idents`."""
    threads = _NOTE.sub("", stacks).strip().split("\n\n")
    return "\n\n".join(thread for thread in threads if _ident(thread) not in idents)


def _ident(thread: str) -> int | None:
    head = _HEAD.match(thread)
    return int(head[1], 16) if head else None


def _note(ident: int, what: str) -> None:
    for descriptor in _descriptors:
        with suppress(OSError):  # a full disk: the report then shows the helper, too
            os.write(descriptor, f"helper thread {ident:#x} {what}\n".encode())
