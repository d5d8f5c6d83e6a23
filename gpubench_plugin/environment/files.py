"""Safe access to regular files: bounded reads, atomic and durable writes.

Opening a pipe would block, opening a device may act on it, a sparse file of a few bytes on disk
fills the memory, and a symbolic link redirects writes out of the results directory. So files are
opened non-blocking and checked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from gpubench_plugin.core.errors import BrokenFile, ResultsError

_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE: Final = (
    os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
)
_ORDINARY_MODE: Final = 0o666  # tempfile's 0600 would hide results from colleagues

_KINDS: Final = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def read(path: Path, *, limit: int) -> bytes:
    """Read the regular file at `path` of at most `limit` bytes; raises as :func:`open_to_read`.

    A larger one is a BrokenFile as well.
    """
    with open_to_read(path) as file:
        size = os.fstat(file.fileno()).st_size
        _require_within(path, size, limit)
        data = file.read(size + 1) or b""
        while chunk := file.read(max(len(data), 1)):  # a growing file, or one without a size
            data += chunk
            _require_within(path, len(data), limit)
        return data


@contextmanager
def open_to_read(path: Path) -> Iterator[IO[bytes]]:
    """Context of the regular file at `path`, open for reading, following links.

    Raises:
        FileNotFoundError: there is no such file.
        BrokenFile: it is not a regular file, or what is read does not fit into memory.
        ResultsError: the operating system refuses to read it.
    """
    try:
        require_regular(path, path.stat())  # opening a device may already act on it
        with os.fdopen(os.open(path, _READ), "rb") as file:
            require_regular(path, os.fstat(file.fileno()))
            yield file
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ResultsError(f"cannot read {path}: {error.strerror or error}") from error
    except MemoryError:
        raise BrokenFile(f"{path} is too large for memory") from None


def open_to_write(path: Path, *, append: bool = False) -> int:
    """Open a regular file for writing or appending, created if missing; return the descriptor.

    Neither `path` nor its folder may be a link. Raises OSError.
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
    """Require the `status` of a regular file; raises BrokenFile."""
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
_PROBE: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TEMPORARY: Final = re.compile(r"\..+\.gpubench-[0-9a-f]{8}\.tmp")
_MIN_AGE_S: Final = 60.0
"""A file changed more recently may not be locked yet, or be locked by another host on a file system
with locks per host. Long enough for a pause between two writes; not measured."""


def write(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Write `path` atomically with `fill`, replacing a symbolic link there; raises OSError.

    Steps: temporary file, fsync, rename, fsync of the folder. A killed writer leaves its temporary
    file, ``.<name>.gpubench-<8 hex>.tmp``. While alive it holds a lock on it, so that later writers
    in the folder can tell and remove abandoned ones.
    """
    for leftover in abandoned(path.parent):
        with suppress(OSError):  # another process removed it
            leftover.unlink()
    temporary = path.with_name(f".{path.name}.gpubench-{secrets.token_hex(4)}.tmp")
    try:
        with os.fdopen(os.open(temporary, _NEW_FILE, _ORDINARY_MODE), "wb") as file:
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
    """Sync directory entries, since fsync of a file does not cover its name (fsync(2))."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def abandoned(folder: Path) -> list[Path]:
    """Temporary files in `folder` left by this user's dead writers."""
    try:
        paths = [path for path in folder.iterdir() if is_temporary(path.name)]
    except OSError:  # removed or unreadable
        return []
    return [path for path in paths if _is_abandoned(path)]


def is_temporary(name: str) -> bool:
    """Whether `name` is a temporary file of :func:`write`."""
    return _TEMPORARY.fullmatch(name) is not None


def _is_abandoned(temporary: Path) -> bool:
    try:
        status = temporary.lstat()
        is_old = time.time() - status.st_mtime > _MIN_AGE_S
        if not (is_old and stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()):
            return False
        descriptor = os.open(temporary, _PROBE)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # its writer is alive, or there are no locks
        return False
    finally:
        os.close(descriptor)
    return True
