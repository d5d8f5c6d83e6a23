"""Files that appear whole and stay: temporary file, fsync, rename, fsync of the folder.

A writer that is killed leaves its temporary file, ``.<name>.gpubench-<8 hex>.tmp``. It holds a lock
on it for as long as it lives, so that whoever writes into the same folder later knows which of them
nobody will rename any more, and removes those.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import stat
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_LOOK: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TEMPORARY: Final = re.compile(r"\..+\.gpubench-[0-9a-f]{8}\.tmp")
_YOUNG_S: Final = 60.0
"""A file that was changed so lately may be one that is not locked yet, or that another host has
locked where a file system keeps locks to a host."""


def write(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Write `path` with what `fill` puts into the file it is given; raises what the system says.

    What stood at `path` is replaced at once, or is as it was: so for a symbolic link, which is not
    followed.
    """
    for left in abandoned(path.parent):
        with suppress(OSError):  # somebody else removed it
            left.unlink()
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
    """Make the names in `folder` durable: a file's own fsync does not cover its name."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def abandoned(folder: Path) -> list[Path]:
    """The temporary files in `folder` that this user's writers left who are gone."""
    try:
        paths = [path for path in folder.iterdir() if is_temporary(path.name)]
    except OSError:  # it is gone, or closed to us
        return []
    return [path for path in paths if _is_abandoned(path)]


def is_temporary(name: str) -> bool:
    """Whether a file that is called so is a temporary one of :func:`write`."""
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
