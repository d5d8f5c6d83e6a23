"""Safe access to regular files: bounded reads, atomic and durable writes.

A pipe would block the process that opens it, a device may act on it, a sparse file of a few bytes
on the disk fills the memory, and a symbolic link leads what is written out of the folder of
results. So a file is opened without waiting.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from gpubench_plugin.errors import BrokenFile, ResultsError

_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE: Final = (
    os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
)
_ORDINARY_MODE: Final = 0o666

_KINDS: Final = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def read(path: Path, *, limit: int) -> bytes:
    """Read the regular file at `path` of at most `limit` bytes, following links.

    Raises:
        FileNotFoundError: there is none.
        BrokenFile: it is no regular file, larger, or does not fit into memory.
        ResultsError: the operating system does not let it be read.
    """
    try:
        require_regular(path, path.stat())  # opening a device may already act on it
        descriptor = os.open(path, _READ)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            status = os.fstat(descriptor)
            require_regular(path, status)
            _require_within(path, status.st_size, limit)
            data = file.read(status.st_size + 1) or b""
            while chunk := file.read(max(len(data), 1)):  # one that grows, or tells no size
                data += chunk
                _require_within(path, len(data), limit)
            return data
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ResultsError(f"cannot read {path}: {error.strerror or error}") from error
    except MemoryError:
        raise BrokenFile(f"{path} is too large for memory") from None


def open_to_write(path: Path, *, append: bool = False) -> int:
    """Open a regular file for writing, creating it if missing; return the descriptor.

    What was in it goes unless `append` is set. Neither `path` nor its folder may be a link.
    Raises OSError where it is one, no regular file, or cannot be opened.
    """
    for target, label in ((path.parent, "its folder"), (path, "it")):
        if target.is_symlink():
            raise OSError(errno.ELOOP, f"{label} is a symbolic link, which is not followed")
    if os.path.lexists(path):
        _require_own_file(path.lstat())  # opening a device may already act on it
    descriptor = os.open(path, _WRITE | (os.O_APPEND if append else 0), _ORDINARY_MODE)
    try:
        _require_own_file(os.fstat(descriptor))
        os.set_blocking(descriptor, True)
        if not append:
            os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def require_regular(path: Path, status: os.stat_result) -> None:
    """Refuse what is at `path` unless `status` is a regular file's; raises BrokenFile."""
    if not stat.S_ISREG(status.st_mode):
        raise BrokenFile(f"{path} is {_kind(status)}")


def _require_own_file(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, f"it is {_kind(status)}")


def _kind(status: os.stat_result) -> str:
    kind = next((name for is_kind, name in _KINDS if is_kind(status.st_mode)), "something else")
    return f"not a regular file but {kind}"


def _require_within(path: Path, size: int, limit: int) -> None:
    if size > limit:
        raise BrokenFile(f"{path} has {size} bytes; the limit is {limit}")


_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_LOOK: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TEMPORARY: Final = re.compile(r"\..+\.gpubench-[0-9a-f]{8}\.tmp")
_YOUNG_S: Final = 60.0
"""A file that was changed so lately may be one that is not locked yet, or that another host has
locked where a file system keeps locks to a host."""


def write(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Write `path` atomically with `fill`; raises OSError.

    What stood at `path` is replaced at once, or is as it was: so for a symbolic link, which is not
    followed.

    In this order: temporary file, fsync, rename, fsync of the folder. A writer that is killed
    leaves its temporary file, ``.<name>.gpubench-<8 hex>.tmp``. It holds a lock on it for as long
    as it lives, so that a later writer into the same folder knows which of them will never be
    renamed, and removes those.
    """
    for leftover in abandoned(path.parent):
        with suppress(OSError):  # somebody else removed it
            leftover.unlink()
    temporary = path.with_name(f".{path.name}.gpubench-{secrets.token_hex(4)}.tmp")
    try:
        # The mode of an ordinary new file: tempfile's 0600 would hide results from colleagues.
        with os.fdopen(os.open(temporary, _NEW_FILE, 0o666), "wb") as file:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fill(file)
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(path)
        sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def sync_folder(folder: Path) -> None:
    """Sync directory entries: fsync of a file does not cover its name."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def abandoned(folder: Path) -> list[Path]:
    """Temporary files in `folder` left by this user's dead writers."""
    try:
        paths = [path for path in folder.iterdir() if is_temporary(path.name)]
    except OSError:  # it is gone, or closed to us
        return []
    return [path for path in paths if _is_abandoned(path)]


def is_temporary(name: str) -> bool:
    """Whether `name` is a temporary file of :func:`write`."""
    return _TEMPORARY.fullmatch(name) is not None


def _is_abandoned(temporary: Path) -> bool:
    try:
        facts = temporary.lstat()
        old = time.time() - facts.st_mtime > _YOUNG_S
        if not (old and stat.S_ISREG(facts.st_mode) and facts.st_uid == os.geteuid()):
            return False
        descriptor = os.open(temporary, _LOOK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # its writer lives, or nobody can tell
        return False
    finally:
        os.close(descriptor)
    return True
