"""Reports of errors by the user's code: gpubench's frames around it are left out."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from _pytest._code.code import Traceback

from gpubench_plugin.core.errors import with_causes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    import pytest

_OWN: Final = frozenset({"gpubench_plugin", "pytest_benchmark"})
_OTHERS: Final = _OWN | {"", "torch", "contextlib", "functools", "_pytest", "pluggy", "pytest"}
"""Packages that call the user's code; without a name is what torch's compiler has made."""


@contextmanager
def own_frames_hidden(excinfo: pytest.ExceptionInfo[BaseException]) -> Iterator[None]:
    """Leave out frames of gpubench, and those of torch that lead to the user's.

    While pytest formats `excinfo`: afterwards the error and its causes have their own tracebacks.
    Nothing is left out of one without a frame of the user's.
    """
    tracebacks = [(error, error.__traceback__) for error in with_causes([excinfo.value])]
    try:
        for error, traceback in tracebacks:
            error.__traceback__ = _without_own(traceback)
        if (shortened := _without_own(excinfo.tb)) is not None:
            excinfo.traceback = Traceback(shortened)
        yield
    finally:
        for error, traceback in tracebacks:
            error.__traceback__ = traceback


def message_with_line(excinfo: pytest.ExceptionInfo[BaseException], message: str) -> str:
    """The `message`, then place and source of the user's line that caused it, if there is one."""
    entries = [entry for entry in excinfo.traceback if _package(entry._rawentry) not in _OTHERS]
    if not entries:
        return message
    entry = entries[-1]
    source = entry.frame.code.fullsource
    line = source.lines[entry.lineno].strip() if source and entry.lineno < len(source) else ""
    return f"{message}\n\n{entry.path}:{entry.lineno + 1}: in {entry.name}\n    {line}".rstrip()


def _entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _without_own(traceback: TracebackType | None) -> TracebackType | None:
    entries = list(_entries(traceback))
    users = [number for number, entry in enumerate(entries) if _package(entry) not in _OTHERS]
    if not users:
        return traceback
    joined: TracebackType | None = None
    for number, entry in reversed([*enumerate(entries)]):
        # Behind the user's last frame the error may be torch's.
        if _package(entry) not in (_OTHERS if number < users[-1] else _OWN):
            joined = type(entry)(joined, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return joined


def _package(entry: TracebackType) -> str:
    return str(entry.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
