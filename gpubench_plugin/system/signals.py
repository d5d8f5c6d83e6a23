"""Signals around a block: raised as exits, ignored, or deferred; and death with the parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, NoReturn

STOPS: Final = (signal.SIGTERM, signal.SIGHUP)
"""Signals of a scheduler and of a closed terminal; torchrun passes both on to its ranks."""
ENDING: Final = (*STOPS, signal.SIGINT)
_PR_SET_PDEATHSIG: Final = 1  # prctl(2), <linux/prctl.h>


def die_with_parent(death: signal.Signals = signal.SIGKILL) -> None:
    """Let the kernel send `death` to this process when its parent ends (Linux).

    If it ends meanwhile, the signal is sent now.
    """
    if sys.platform != "linux":
        return
    expected = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, death, 0, 0, 0)
    if os.getppid() != expected:
        os.kill(os.getpid(), death)


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Raise SystemExit on SIGTERM and SIGHUP, unless ignored, so that cleanup runs as on Ctrl-C."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)  # as shells report a signal

    handled_signals = (n for n in STOPS if signal.getsignal(n) is not signal.SIG_IGN)
    with _handled(end, *handled_signals):
        yield


@contextmanager
def signals_ignored() -> Iterator[None]:
    """Ignore further termination signals during cleanup."""
    with _handled(signal.SIG_IGN, *ENDING):
        yield


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Block termination signals, also in processes started meanwhile; here they come afterwards."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Defer signals to the end of the block, so that a process being started is not lost."""
    received: list[int] = []
    try:
        with _handled(lambda number, _: received.append(number), *ENDING):
            yield
    finally:
        for number in received[:1]:
            signal.raise_signal(number)


@contextmanager
def _handled(
    handler: Callable[[int, FrameType | None], Any] | signal.Handlers, *numbers: signal.Signals
) -> Iterator[None]:
    previous: dict[signal.Signals, Any] = {}
    with suppress(ValueError):  # not in the main thread, which alone handles signals
        for number in numbers:
            if signal.getsignal(number) is not None:  # a C library's could not be put back
                previous[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, previous_handler in previous.items():
            signal.signal(number, previous_handler)
