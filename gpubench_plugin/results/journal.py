"""Run journal: one JSON line per event, written when it happens.

A run killed at any moment leaves a readable journal with all events so far: a line is with the
kernel once it is written, and survives the processes. What must survive the machine as well is
synced to disk before continuing. A whole line is never taken back, whatever fails or interrupts its
writer afterwards. A line is self-contained::

    {"schema_version": 1, "event": "benchmark", "time": "2026-01-31T12:00:00.123456Z", …}

Non-finite numbers, which JSON lacks, are null and listed under ``not_finite`` by JSON pointer:
``{"/loss": "nan"}``.
"""

from __future__ import annotations

import math
import os
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any, Final

from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.core.records import Json
from gpubench_plugin.system import files, json_files, stored
from gpubench_plugin.system.files import KernelLock

FORMAT: Final = stored.Format(kind="journal line", newest=1)

# A thread that a signal has stopped within a write, for good, must not keep others from writing the
# results. Two thousand times as long as a write and a sync take.
_PATIENCE_S: Final = 1.0

# Read at a time: hundreds of events, ten times as large as objects, in memory that the allocator
# keeps, unlike that of larger blocks; a longer line, such as a record, is read whole.
_CHUNK_BYTES: Final = 1 << 16


def utc_now() -> str:
    """Current UTC time in ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def as_json(event: Mapping[str, Any]) -> Json:
    """`event` in JSON types, its non-finite numbers listed under ``not_finite``."""
    non_finite: dict[str, str] = {}
    line: Json = json_files.jsonable(event, dropped=non_finite)
    if non_finite:
        line["not_finite"] = {**line.get("not_finite", {}), **non_finite}
    return line


def line_of(event: Mapping[str, Any], time: str) -> str:
    """The line of an `event`, named by its ``event`` key, at a `time` unless it has its own."""
    head = {"schema_version": FORMAT.newest, "event": event["event"], "time": time}
    return json_files.text(as_json({**head, **event})) + "\n"


class Journal(AbstractContextManager["Journal"]):
    """Journal at `path`, open for appending and locked against other processes.

    The lock ends with the process, even if children survive. Opening changes nothing: a torn last
    line is removed before the first line is appended. Raises ResultsError if the file cannot be
    written, or another process is writing it.
    """

    def __init__(self, path: Path, *, now: Callable[[], str] = utc_now):
        self.path = path
        self._now = now
        self._may_be_torn = True
        self._synced_at = -math.inf
        self._lock = threading.Lock()
        with files.refusals("write", path):
            self._file = KernelLock(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            try:
                self._file.acquire()
            except BlockingIOError:
                raise ResultsError(f"{path} is being written by another process") from None
            except OSError:
                pass  # a file system without locks
            files.sync_folder(path.parent)  # which makes its name durable

    def append(self, event: Mapping[str, Any], *, sync_interval_s: float = 0.0) -> None:
        """Append the line of an `event`.

        Synced to disk with all earlier lines, unless that was done within the last
        `sync_interval_s`. May be called by several threads.

        Raises:
            ResultsError: the write failed, and the line is not in the journal; or only the sync,
                and it is. Earlier ones are. Or the file was removed, moved away or replaced.
        """
        data = line_of(event, self._now()).encode("ascii")
        with files.refusals("write", self.path):
            is_locked = self._lock.acquire(timeout=_PATIENCE_S)
            try:
                self._write(data, is_alone=is_locked)
            finally:
                if is_locked:
                    self._lock.release()
            if (now := monotonic()) - self._synced_at >= sync_interval_s:
                os.fsync(self._file.descriptor)  # beside which other threads may write
                self._synced_at = now
            if os.path.samestat(self.path.stat(), os.fstat(self._file.descriptor)):
                return
        raise ResultsError(f"cannot write {self.path}: another file has taken its place")

    def _write(self, data: bytes, *, is_alone: bool) -> None:
        """Write a line; what does not become whole is removed before the next.

        Not by a thread that is not alone: what looks torn to it may be about to become whole.
        """
        may_be_torn = is_alone and self._may_be_torn
        self._may_be_torn |= is_alone
        files.append_line(self._file.descriptor, data, may_be_torn=may_be_torn)
        self._may_be_torn &= not is_alone

    def close(self) -> None:
        """Close the file; idempotent."""
        with suppress(OSError):  # else a child forked in C would keep the lock
            self._file.release()
        self._file.close()

    def __exit__(self, *error: object) -> None:
        self.close()


class JournalTail:
    """Lines of the journal at `path` as they are written, each read once.

    A line that is not complete yet is left for the next time, at which it may have been replaced:
    a resumed session removes a torn one. A file that has become shorter is read again.

    With `needed` events, a long training costs little: what begins and ends like a line of another
    event is left out unparsed, but for the last line of those that are read at a time. With
    `points`, that is one of so many parts of the file, and of lines of other events that are alike
    but for their numbers the last one is read.
    """

    def __init__(self, path: Path, needed: Collection[str] = (), *, points: int = 0):
        self._path = path
        self._pattern = _pattern_of(needed)
        self._points = points
        self._offset = 0
        self._lines = 0

    def __iter__(self) -> Iterator[Json]:
        return (event for events in iter(self.read, []) for event in events)

    def read(self, *, chunk_bytes: int = _CHUNK_BYTES) -> list[Json]:
        """Complete lines since the last call, of at most `chunk_bytes`, or a longer one.

        Raises:
            ResultsError: it cannot be read, or a line is broken, or of another version.
        """
        opened = files.open_to_read(self._path, limit=json_files.LIMIT_BYTES)
        with files.refusals("read", self._path), opened as file:
            if (size := file.seek(0, os.SEEK_END)) < self._offset:  # a shorter one replaced it
                self._offset = self._lines = 0
            if self._points:
                chunk_bytes = size // self._points + 1
            file.seek(self._offset)
            data = file.read(chunk_bytes)
            if b"\n" not in data.lstrip() and len(data) == chunk_bytes:
                data += file.readline(json_files.LIMIT_BYTES)
        data = data[: data.rfind(b"\n") + 1]
        text = data.rstrip()
        events: list[Json] = []
        number = self._lines + 1
        for others, line in self._pattern.findall(text):
            first, number = number, number + others.count(b"\n")
            rows = _last_of_alike(others + line, first) if self._points else [(number, line)]
            events += [FORMAT.parse(row, f"{self._path}, line {n}") for n, row in rows]
        self._offset += len(data)
        self._lines = number - 1 + data.count(b"\n", len(text))
        return events


def _pattern_of(needed: Collection[str]) -> re.Pattern[bytes]:
    """Pattern of blank lines and, unless none is `needed`, those of other events; and of the next.

    The event is their first string but the time, as in :func:`line_of`; all else is to be parsed.
    """
    head = rf'(?:"schema_version": {FORMAT.newest}, |"time": "[^"\\\n]*", )*+'
    event = rf'"event": "(?!(?:{"|".join(needed)})")\w+"'
    other = rf"|\{{{head}{event}.*\}}" if needed else ""
    return re.compile(rf"((?:(?:[^\S\n]*{other})\n)*+)(.+)".encode())


def _last_of_alike(lines: bytes, first: int) -> list[tuple[int, bytes]]:
    """Of `lines`, numbered from the `first`, the last of those with equal text around numbers."""
    shapes = lines.translate(None, b"+-.0123456789").split(b"\n")
    last = dict(zip(shapes, enumerate(lines.split(b"\n"), first), strict=True))
    return sorted(row for row in last.values() if row[1].strip())


def restore_non_finite(event: Json) -> Json:
    """Restore the non-finite numbers of a journal line; raises LookupError for a bad pointer."""
    for pointer, number in event.get("not_finite", {}).items():
        parts = pointer.split("/")[1:]
        # Of a JSON pointer (RFC 6901, section 4).
        *path, last_key = (part.replace("~1", "/").replace("~0", "~") for part in parts)
        target: Any = event
        for part in path:
            target = target[int(part) if isinstance(target, list) else part]
        target[int(last_key) if isinstance(target, list) else last_key] = float(number)
    return event
