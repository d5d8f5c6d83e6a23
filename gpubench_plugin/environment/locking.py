"""One writer at a time in a folder of small files that are read, changed and written again."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from gpubench_plugin.environment.locks import KernelLock
from gpubench_plugin.errors import ResultsError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder` alone; others wait for as long as this lasts, which is one small file.

    The lock is the kernel's and on the folder itself: it goes with the process, and leaves no
    file behind. A file system without locks offers none.

    Raises:
        ResultsError: the folder cannot be opened.
    """
    try:
        lock = KernelLock(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ResultsError(f"{folder} cannot be opened: {error.strerror}") from error
    with lock:
        with suppress(OSError):
            lock.take(wait=True)
        yield
