"""The folder that the processes of a gang share: for this user only, and not left behind.

Its owner holds a lock that the kernel takes back however the owner ends. So whoever makes the next
folder can tell which ones nobody will remove any more, and removes them.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpubench_plugin.errors import GangError
from gpubench_plugin.kernel_lock import KernelLock

_PREFIX: Final = "gpubench-gang-"
_LOCK: Final = "lock"
_LONGEST_PARENT: Final = 64
"""Bytes; the path of a unix socket has room for 104 (BSD) or 108 (Linux), see unix(7)."""


class PrivateFolder:
    """A new folder in the folder for temporary files, or in ``/tmp`` where that path is too long.

    Raises:
        GangError: it cannot be made.
    """

    def __init__(self) -> None:
        parent = tempfile.gettempdir()
        if len(os.fsencode(parent)) > _LONGEST_PARENT:
            parent = "/tmp"
        _remove_abandoned(Path(parent))
        self._lock: KernelLock | None = None
        try:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))  # mode 0700
        except OSError as error:
            raise GangError(f"no folder for the gang's socket could be made: {error}") from error
        # On a file system without locks nobody can tell an abandoned folder: then it stays.
        with suppress(OSError):
            self._claim()

    def _claim(self) -> None:
        unlocked = self.path / f"{_LOCK}.new"
        self._lock = KernelLock(unlocked, os.O_CREAT | os.O_RDWR, 0o600)
        self._lock.take(wait=True)
        unlocked.rename(self.path / _LOCK)  # under its name it has never been without its owner

    def remove(self) -> None:
        """Remove it with all that is in it; a second time does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()


def _remove_abandoned(parent: Path) -> None:
    for lock in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError):  # somebody else's, or gone by now
            if not _is_private(lock.parent):
                continue
            with KernelLock(lock, os.O_RDWR | os.O_NOFOLLOW) as abandoned:
                abandoned.take()
                shutil.rmtree(lock.parent, ignore_errors=True)


def _is_private(folder: Path) -> bool:
    """Whether it is made as ours are; a link to one is not."""
    status = folder.lstat()
    is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return is_ours and status.st_mode & 0o777 == 0o700
