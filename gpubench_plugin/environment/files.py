"""Files of which nobody knows what stands in their place: opened without waiting, read in bounds.

A pipe would block whoever opens it, a device may act on it, a sparse file of a few bytes on the
disk fills the memory, and a symbolic link leads what is written out of the folder of results.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Final

from gpubench_plugin.errors import BrokenFile, ResultsError

if TYPE_CHECKING:
    from pathlib import Path

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
    """What the regular file at `path` holds, of at most `limit` bytes; links are followed.

    Raises:
        FileNotFoundError: there is none.
        BrokenFile: it is no regular file, larger, or does not fit into memory.
        ResultsError: the operating system does not let it be read.
    """
    try:
        _require_regular(path, path.stat())  # opening a device may already act on it
        descriptor = os.open(path, _READ)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            status = os.fstat(descriptor)
            _require_regular(path, status)
            _require_within(path, status.st_size, limit)
            data = file.read(status.st_size + 1) or b""
            while more := file.read(max(len(data), 1)):  # one that grows, or tells no size
                data += more
                _require_within(path, len(data), limit)
            return data
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error.strerror or error}") from error
    except MemoryError:
        raise BrokenFile(f"{path} does not fit into memory") from None


def open_to_write(path: Path, *, append: bool = False) -> int:
    """A descriptor of `path`, a regular file that is made where there is none, to write to.

    What was in it goes unless `append` is set. Neither `path` nor its folder may be a link.
    Raises OSError where it is one, no regular file, or cannot be opened.
    """
    for place, what in ((path.parent, "its folder"), (path, "it")):
        if place.is_symlink():
            raise OSError(errno.ELOOP, f"{what} is a symbolic link, which is not followed")
    if os.path.lexists(path):
        _require_ours(path.lstat())  # opening a device may already act on it
    descriptor = os.open(path, _WRITE | (os.O_APPEND if append else 0), _ORDINARY_MODE)
    try:
        _require_ours(os.fstat(descriptor))
        os.set_blocking(descriptor, True)
        if not append:
            os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def require_regular(path: Path, descriptor: int) -> None:
    """Refuse an open `descriptor` of `path` that is none of a regular file; raises BrokenFile."""
    _require_regular(path, os.fstat(descriptor))


def _require_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise BrokenFile(f"{path} is {_kind(status)}")


def _require_ours(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, f"it is {_kind(status)}")


def _kind(status: os.stat_result) -> str:
    kind = next((name for is_kind, name in _KINDS if is_kind(status.st_mode)), "something else")
    return f"no regular file but {kind}"


def _require_within(path: Path, size: int, limit: int) -> None:
    if size > limit:
        raise BrokenFile(
            f"{path} has {size} bytes; such files of more than {limit} bytes are not read"
        )
