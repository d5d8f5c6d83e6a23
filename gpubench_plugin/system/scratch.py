"""Temporary folders, of which those of killed processes are removed later.

The process that makes a folder holds a lock on it until it removes it, so a folder whose lock is
free is garbage.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from gpubench_plugin.core.errors import GangError
from gpubench_plugin.system.files import KernelLock

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class ScratchFolder(AbstractContextManager["ScratchFolder"]):
    """A folder at `path` for this user only, whose `lock` this process holds.

    As a context it is removed at the end.
    """

    def __init__(self, path: Path, lock: KernelLock):
        self.path = path
        self._lock = lock

    def remove(self) -> bool:
        """Remove the folder and release its lock; idempotent; whether it is gone."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()
        return not self.path.exists()

    def __exit__(self, *_: object) -> None:
        self.remove()

    def release(self) -> None:
        """Release the lock and leave the folder to a later process."""
        self._lock.close()


def make(parent: Path, prefix: str) -> ScratchFolder:
    """Make a folder in `parent` whose name starts with `prefix`; raises OSError."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=_local(prefix), dir=os.path.realpath(parent)))
        with suppress(FileNotFoundError):  # another process took it for garbage
            lock = KernelLock(path, _FOLDER)
            with suppress(OSError):  # a file system without locks
                lock.acquire(wait=True)
            if os.path.samestat(os.fstat(lock.descriptor), path.lstat()):
                return ScratchFolder(path, lock)


def leftovers(parent: Path, prefix: str) -> Iterator[ScratchFolder]:
    """Folders in `parent` with that prefix that killed processes of this user have left."""
    for path in sorted(Path(os.path.realpath(parent)).glob(f"{_local(prefix)}*")):
        with suppress(OSError):  # not a folder, no access, gone, in use, or without locks
            lock = KernelLock(path, _FOLDER)
            if os.fstat(lock.descriptor).st_uid == os.geteuid():
                lock.acquire()
                yield ScratchFolder(path, lock)


def _local(prefix: str) -> str:
    """The prefix on this host: on a shared file system locks may be per host."""
    return f"{prefix}{sha256(socket.gethostname().encode()).hexdigest()[:4]}-"


_LOGGER: Final = logging.getLogger("gpubench")
_PREFIX: Final = "gpubench-gang-"
# The path of a unix socket has at most 104 (BSD) or 108 bytes (Linux), see unix(7).
_MAX_PARENT_BYTES: Final = 59


def private_folder() -> ScratchFolder:
    """Private folder for the processes of a gang or a shard, in the folder for temporary files.

    It is in ``/tmp`` if that path is too long. Removes and logs the folders of killed sessions.

    Raises:
        GangError: it cannot be created.
    """
    parent = Path(os.path.realpath(tempfile.gettempdir()))
    if len(os.fsencode(parent)) > _MAX_PARENT_BYTES:
        parent = Path("/tmp")
    for leftover in leftovers(parent, _PREFIX):
        if leftover.remove():
            _LOGGER.info("removed %s, left over by a killed session", leftover.path)
    try:
        return make(parent, _PREFIX)
    except OSError as error:
        raise GangError(f"cannot create a folder for the gang's socket: {error}") from error
