"""Run journal: one JSON line per event, synced to disk before continuing.

A run killed at any moment leaves a readable journal. A line is self-contained::

    {"schema_version": 1, "event": "benchmark", "time": "2026-01-31T12:00:00.123456Z", …}

Non-finite numbers, which JSON lacks, are null and listed under ``not_finite`` by JSON pointer:
``{"/loss": "nan"}``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

from gpubench_plugin.environment import KernelLock, files, json_files, stored
from gpubench_plugin.errors import BrokenFile, ResultsError
from gpubench_plugin.records import Json

_LINE: Final = stored.Format(kind="journal line", newest=1)

_APPEND: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK


def utc_now() -> str:
    """Current UTC time in ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class Journal:
    """Journal at `path`, open for appending and locked against other processes.

    The lock ends with the process, even if children survive. Opening changes nothing: a torn last
    line is removed before the first line is appended. Raises ResultsError if the file cannot be
    written, or another process is writing it.
    """

    def __init__(self, path: Path, *, now: Callable[[], str] = utc_now):
        self.path = path
        self._now = now
        self._end: int | None = None
        try:
            self._file = KernelLock(path, _APPEND)
        except OSError as error:
            raise json_files.not_written(path, error) from error
        try:
            files.require_regular(path, os.fstat(self._file.descriptor))
            _lock(path, self._file)
            files.sync_folder(path.parent)
        except ResultsError:
            self.close()
            raise
        except OSError as error:
            self.close()
            raise json_files.not_written(path, error) from error

    def append(self, event: Mapping[str, Any]) -> None:
        """Append `event`, named by its ``event`` key, and sync it to disk.

        Raises:
            ResultsError: the write failed; the line is not in the journal, earlier ones are intact.
        """
        non_finite: dict[str, str] = {}
        head = {"schema_version": _LINE.newest, "event": event["event"], "time": self._now()}
        line = json_files.jsonable({**head, **event}, dropped=non_finite)
        if non_finite:
            line["not_finite"] = non_finite
        data = (json_files.text(line) + "\n").encode("ascii")
        try:
            if self._end is None:
                self._end = _repair_tail(self.path, self._file.descriptor)
            _write_all(self._file.descriptor, data)
            os.fsync(self._file.descriptor)
        except BaseException as error:
            if self._end is not None:
                with suppress(OSError):
                    os.ftruncate(self._file.descriptor, self._end)
            if isinstance(error, OSError):
                raise json_files.not_written(self.path, error) from error
            raise
        self._end += len(data)

    def close(self) -> None:
        """Close the file; idempotent."""
        with suppress(OSError):  # else a child forked in C would keep the lock
            self._file.release()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"


def read(path: Path) -> list[Json]:
    """Complete lines of the journal at `path`, ignoring a torn last (or only) one.

    Raises:
        ResultsError: it cannot be read, an earlier line is broken, or of a newer version.
    """
    try:
        lines = files.read(path, limit=json_files.LIMIT_BYTES).split(b"\n")
    except FileNotFoundError as error:
        raise ResultsError(f"cannot read {path}: {error.strerror}") from error
    events: list[Json] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            event = _event(line)
        except BrokenFile as error:
            if number == len(lines) and (events or line.startswith(b"{")):
                break
            raise BrokenFile(f"{path}, line {number}: invalid journal line: {error}") from None
        events.append(_LINE.check(event, f"{path}, line {number}"))
    return events


def restore_non_finite(event: Json) -> Json:
    """Restore the non-finite numbers of a journal line; raises BrokenFile for a bad pointer."""
    try:
        for pointer, number in event.get("not_finite", {}).items():
            *path, last_key = (_unescaped(part) for part in pointer.split("/")[1:])
            target: Any = event
            for part in path:
                target = target[int(part) if isinstance(target, list) else part]
            target[int(last_key) if isinstance(target, list) else last_key] = float(number)
    except json_files.MALFORMED as error:
        raise BrokenFile(f"invalid not_finite in a journal line: {error!r}") from error
    return event


def _unescaped(part: str) -> str:
    """Unescape a JSON pointer part (RFC 6901, section 4)."""
    return part.replace("~1", "/").replace("~0", "~")


def _event(line: bytes) -> Json:
    """Parse a JSON object; a truncated one is never valid. Raises BrokenFile."""
    event = json_files.parse(line, "it")
    if not isinstance(event, dict):
        raise BrokenFile("not a JSON object")
    return event


def _lock(path: Path, file: KernelLock) -> None:
    try:
        file.acquire()
    except BlockingIOError:
        raise ResultsError(f"{path} is being written by another process") from None
    except OSError:
        return  # a file system without locks


def _repair_tail(path: Path, descriptor: int) -> int:
    """Terminate or drop an incomplete last line; return the remaining size."""
    data = files.read(path, limit=json_files.LIMIT_BYTES)
    complete_bytes = data.rfind(b"\n") + 1
    try:
        _event(data[complete_bytes:])
    except BrokenFile:
        os.ftruncate(descriptor, complete_bytes)
        return complete_bytes
    _write_all(descriptor, b"\n")
    return len(data) + 1


def _write_all(descriptor: int, data: bytes) -> None:
    """Call `os.write` until all is written, since a nearly full disk accepts only a part."""
    while data:
        data = data[os.write(descriptor, data) :]
