"""Files: bounded reads of regular ones, atomic and durable writes, whole lines, and locks.

A flock belongs to the open file description, which a forked child shares, and would outlive its
owner there (flock(2)). So each child forked through Python, such as a ``DataLoader`` worker, closes
them first, which does not release the owner's lock; an ``exec`` closes them too. Only a child
forked in C that never calls ``exec`` keeps them until it exits.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Final
from weakref import WeakSet

from gpubench_plugin.core.errors import BrokenFile, ResultsError

_ORDINARY_MODE: Final = 0o666  # tempfile's 0600 would hide results from colleagues
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_TEMPORARY: Final = re.compile(r"\..+\.gpubench-[0-9a-f]{8}\.tmp")
_BLOCK_BYTES: Final = 1 << 16
# Longer than a writer pauses between two writes.
_ABANDONED_AFTER_S: Final = 3600.0


@contextmanager
def refusals(action: str, path: Path | str | None = None) -> Iterator[None]:
    """Convert what the operating system refuses to a ResultsError: ``cannot read run.log: …``.

    The error names the path where none is given.
    """
    try:
        yield
    except OSError as error:
        place = error.filename if path is None else path
        raise ResultsError(f"cannot {action} {place}: {error.strerror or error}") from error


def read(path: Path, *, limit: int) -> bytes:
    """Read the regular file at `path`; raises as :func:`open_to_read`."""
    with open_to_read(path, limit=limit) as file:
        return file.read()


@contextmanager
def open_to_read(path: Path, *, limit: int | None = None) -> Iterator[IO[bytes]]:
    """Context of the regular file at `path`, open for reading.

    Raises:
        FileNotFoundError: there is no such file.
        BrokenFile: it is not a regular file, has more than `limit` bytes, or what is read does not
            fit into memory.
        ResultsError: the operating system refuses to read it.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would block
            raise BrokenFile(f"{path} is not a regular file")
        with path.open("rb") as file:
            if limit is not None and (size := os.fstat(file.fileno()).st_size) > limit:
                raise BrokenFile(f"{path} has {size} bytes; the limit is {limit}")
            yield file
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ResultsError(f"cannot read {path}: {error.strerror or error}") from error
    except MemoryError:
        raise BrokenFile(f"{path} is too large for memory") from None


def write(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Write `path` atomically with `fill`, replacing a symbolic link there; raises OSError.

    Steps: temporary file, fsync, rename, fsync of the folder. A killed writer leaves its temporary
    file, ``.<name>.gpubench-<8 hex>.tmp``, which a writer in the folder removes an hour later.
    """
    for leftover in abandoned(path.parent):
        with suppress(OSError):  # another process removed it
            leftover.unlink()
    temporary = temporary_name(path)
    try:
        with os.fdopen(os.open(temporary, _NEW_FILE, _ORDINARY_MODE), "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(path)
        sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def append_line(descriptor: int, line: bytes, *, may_be_torn: bool = True) -> None:
    """Append a `line` to an open file, whose incomplete last line is removed; raises OSError."""
    if may_be_torn:
        start, end = os.fstat(descriptor).st_size, -1
        while end < 0 < start:
            start = max(0, start - _BLOCK_BYTES)
            end = os.pread(descriptor, _BLOCK_BYTES, start).rfind(b"\n")
        os.ftruncate(descriptor, start + end + 1)
    while line:  # a nearly full disk accepts only a part
        line = line[os.write(descriptor, line) :]


def sync_folder(folder: Path) -> None:
    """Sync directory entries, since fsync of a file does not cover its name (fsync(2))."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def abandoned(folder: Path) -> list[Path]:
    """Temporary files in `folder` left by dead writers."""
    latest = time.time() - _ABANDONED_AFTER_S
    with suppress(OSError):  # removed or unreadable
        files = [path for path in folder.iterdir() if is_temporary(path.name) and path.is_file()]
        return [path for path in files if path.stat().st_mtime < latest]
    return []


def temporary_name(path: Path) -> Path:
    """New name beside `path` for what is not whole yet, or no more."""
    return path.with_name(f".{path.name}.gpubench-{secrets.token_hex(4)}.tmp")


def is_temporary(name: str) -> bool:
    """Whether `name` is a :func:`temporary_name`."""
    return _TEMPORARY.fullmatch(name) is not None


class KernelLock(AbstractContextManager["KernelLock"]):
    """Lock on an open file, released by the kernel when the process ends.

    After :meth:`close`, and in a forked child, `descriptor` is -1. Opening raises OSError. One that
    is dropped is closed.
    """

    def __init__(self, path: Path, flags: int):
        self.descriptor = -1
        _OPEN.add(self)
        self.descriptor = os.open(path, flags | os.O_CLOEXEC, _ORDINARY_MODE)

    def acquire(self, *, shared: bool = False, wait: bool = False) -> None:
        """Acquire the lock, exclusive or `shared`.

        Raises:
            BlockingIOError: another process holds it and `wait` is not set.
            OSError: the file system has no locks.
        """
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(self.descriptor, kind if wait else kind | fcntl.LOCK_NB)

    def release(self) -> None:
        """Release the lock but keep the file open; raises OSError."""
        if self.descriptor >= 0:
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Release the lock and close the file; idempotent."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()

    def __exit__(self, *_: object) -> None:
        self.close()


_OPEN: Final[WeakSet[KernelLock]] = WeakSet()


def _close_in_child() -> None:
    for lock in tuple(_OPEN):
        with suppress(OSError):
            lock.close()


os.register_at_fork(after_in_child=_close_in_child)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on `folder` while a small file in it is updated.

    Other processes wait. The lock is on the folder itself, so no lock file is left; a file system
    without locks offers none. Raises ResultsError.
    """
    with refusals("open", folder):
        lock = KernelLock(folder, os.O_RDONLY | os.O_DIRECTORY)
    with lock:
        with suppress(OSError):
            lock.acquire(wait=True)
        yield
