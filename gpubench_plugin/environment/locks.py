"""Kernel file locks (flock), held by one process and not inherited by children.

A lock of that kind belongs to the open file, which a forked child shares: it would live on in the
child when its owner is dead. So every child that is forked through Python, a worker of a
``DataLoader`` for example, closes them first of all; that lets the owner's lock be. What is started
anew (``exec``) never gets them. A child that a library forks in C, past Python, and that goes on
without ``exec``, holds them for as long as it lives.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self
from weakref import WeakSet

from gpubench_plugin.errors import ResultsError


class KernelLock:
    """An open file, `descriptor`, and this process's lock on it once taken.

    The kernel lets go with the process, however that ends. In a forked child, and once it was
    closed, the descriptor is -1. Raises OSError where the file cannot be opened.
    """

    def __init__(self, path: Path, flags: int, mode: int = 0o666):
        self.descriptor = -1
        _OPEN.add(self)
        self.descriptor = os.open(path, flags | os.O_CLOEXEC, mode)

    def acquire(self, *, shared: bool = False, wait: bool = False) -> None:
        """Acquire the lock, exclusive or `shared`.

        Raises:
            BlockingIOError: another process holds it, and this is not to `wait`.
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

    Others wait for as long as this lasts. The lock is the kernel's and on the folder itself: it
    goes with the process, and leaves no file behind. A file system without locks offers none.

    Raises:
        ResultsError: the folder cannot be opened.
    """
    try:
        lock = KernelLock(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ResultsError(f"cannot open {folder}: {error.strerror}") from error
    with lock:
        with suppress(OSError):
            lock.acquire(wait=True)
        yield
