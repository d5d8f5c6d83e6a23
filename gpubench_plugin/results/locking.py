"""One writer at a time in a folder of small files that are read, changed and written again."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

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
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ResultsError(f"{folder} cannot be opened: {error.strerror}") from error
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
