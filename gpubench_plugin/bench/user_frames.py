"""Reports of errors by the user's code: gpubench's frames around it are left out."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from _pytest._code.code import Traceback

from gpubench_plugin.core.errors import with_causes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    import pytest

_OWN: Final = frozenset({"gpubench_plugin", "pytest_benchmark"})
_CALLED: Final = frozenset({"", "torch", "contextlib", "functools"})
"""Modules between ours and the user's: torch's wrappers, and code without a module that it made."""
_OTHERS: Final = _OWN | _CALLED | {"_pytest", "pluggy", "pytest"}


@contextmanager
def own_frames_hidden(excinfo: pytest.ExceptionInfo[BaseException]) -> Iterator[None]:
    """Leave out frames of gpubench, and of torch between them and the user's, and of its compiler.

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
    if all(_package(entry) in _OTHERS for entry in entries):
        return traceback
    joined: TracebackType | None = None
    for entry in reversed(list(_visible(entries))):
        joined = type(entry)(joined, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return joined


def _visible(entries: Iterable[TracebackType]) -> Iterator[TracebackType]:
    """Entries that are neither ours nor between ours, or the compiler's, and the user's."""
    between: list[TracebackType] | None = None
    for entry in entries:
        if _package(entry) in _OWN:
            between = []
        elif _module(entry).startswith("torch._dynamo"):
            between = [*(between or ()), entry]
        elif between is not None and _package(entry) in _CALLED:
            between.append(entry)
        else:
            between = None
            yield entry
    yield from between or ()  # the error is torch's


def _package(entry: TracebackType) -> str:
    return _module(entry).partition(".")[0]


def _module(entry: TracebackType) -> str:
    return str(entry.tb_frame.f_globals.get("__name__", ""))
