"""Helper threads of the plugin, which hang reports omit.

faulthandler identifies threads by ident only, so each helper notes its own, and when it ends, since
the system reuses idents.
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
    """A daemon thread registered as a helper while it runs."""

    def __init__(self, name: str, target: Callable[..., object], *arguments: Any):
        super().__init__(name=name, target=target, args=arguments, daemon=True)

    def run(self) -> None:
        """Run the target and unregister."""
        ident = threading.get_ident()
        _idents.add(ident)
        _note(ident, "begins")
        try:
            super().run()
        finally:
            _note(ident, "ends")
            _idents.discard(ident)


def record_in(descriptor: int) -> None:
    """Record helper threads in the open stack file from now on."""
    _descriptors.append(descriptor)
    for ident in tuple(_idents):
        _note(ident, "begins")


def helper_idents() -> frozenset[int]:
    """Thread ids of the running helpers in this process."""
    return frozenset(_idents)


def recorded_idents(text: str) -> frozenset[int]:
    """Ids of helpers still running at the end of a stack file's `text`."""
    running: set[int] = set()
    for ident, event in _NOTE.findall(text):
        (running.add if event == "begins" else running.discard)(int(ident, 16))
    return frozenset(running)


def without_helpers(stacks: str, idents: frozenset[int]) -> str:
    """Remove the notes and the helper threads from faulthandler's `stacks`."""
    threads = _NOTE.sub("", stacks).strip().split("\n\n")
    return "\n\n".join(thread for thread in threads if _ident(thread) not in idents)


def _ident(thread: str) -> int | None:
    head = _HEAD.match(thread)
    return int(head[1], 16) if head else None


def _note(ident: int, event: str) -> None:
    for descriptor in _descriptors:
        with suppress(OSError):  # a full disk: the report then shows the helper, too
            os.write(descriptor, f"helper thread {ident:#x} {event}\n".encode())
