"""Being asked to end: by Ctrl-C, SIGTERM, or the closing of the terminal."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, NoReturn

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP raise SystemExit, as Ctrl-C raises KeyboardInterrupt; all is cleaned up.

    A signal that is ignored, as ``nohup`` has it, stays so.
    """

    def end(number: int, frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)  # as a shell says of a signal

    heard = (n for n in _ENDING[1:] if signal.getsignal(n) is not signal.SIG_IGN)
    with _handled(end, *heard):
        yield


@contextmanager
def unheard() -> Iterator[None]:
    """Whoever cleans up is not asked to end a second time."""
    with _handled(signal.SIG_IGN, *_ENDING):
        yield


@contextmanager
def deferred() -> Iterator[None]:
    """What comes now is heard at the end of this.

    An exception while a process is being started would lose it: nobody would end it then.
    """
    came: list[int] = []
    try:
        with _handled(lambda number, _: came.append(number), *_ENDING):
            yield
    finally:
        for number in came[:1]:
            signal.raise_signal(number)


@contextmanager
def _handled(
    handler: Callable[[int, FrameType | None], Any] | signal.Handlers, *numbers: signal.Signals
) -> Iterator[None]:
    previous: dict[signal.Signals, Any] = {}
    with suppress(ValueError):  # not in the main thread, where no signal raises anything
        for number in numbers:
            previous[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)
