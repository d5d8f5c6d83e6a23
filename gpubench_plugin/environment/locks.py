"""Kernel file locks (flock), held by one process and not inherited by children.

A flock belongs to the open file description, which a forked child shares, and would outlive its
owner there (flock(2)). So each child forked through Python, such as a ``DataLoader`` worker, closes
them first, which does not release the owner's lock; an ``exec`` closes them too. Only a child
forked in C that never calls ``exec`` keeps them until it exits.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self
from weakref import WeakSet

from gpubench_plugin.core.errors import ResultsError


class KernelLock:
    """Lock on an open file, released by the kernel when the process ends.

    After :meth:`close`, and in a forked child, `descriptor` is -1. Opening raises OSError. One that
    is dropped is closed.
    """

    def __init__(self, path: Path, flags: int, mode: int = 0o666):
        self.descriptor = -1
        _OPEN.add(self)
        self.descriptor = os.open(path, flags | os.O_CLOEXEC, mode)

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

    def __enter__(self) -> Self:
        return self

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
    try:
        lock = KernelLock(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ResultsError(f"cannot open {folder}: {error.strerror}") from error
    with lock:
        with suppress(OSError):
            lock.acquire(wait=True)
        yield
