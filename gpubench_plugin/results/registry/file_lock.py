"""A lock beside an SQLite file: shared while it is open, alone while it is made anew."""

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING, Final

from gpubench_plugin.environment.locks import KernelLock
from gpubench_plugin.errors import RegistryError

if TYPE_CHECKING:
    from pathlib import Path

    from gpubench_plugin.results.registry.location import Location

_POLL_S: Final = 0.02
_TAKEN: Final = frozenset({errno.EAGAIN, errno.EACCES})


class FileLock:
    """The lock file at `path`, made where it is missing and never removed.

    The kernel lets go with the process, however that ends. Where the file cannot be made, on a
    read-only disk, or the file system has no locks, there is none.
    """

    def __init__(self, path: Path):
        self._path = path
        self._lock: KernelLock | None = None

    def share(self, patience_s: float, location: Location) -> None:
        """Hold it together with others.

        Raises:
            RegistryError: somebody holds it alone for longer than `patience_s`.
        """
        self._hold(patience_s, location, shared=True)

    def take(self, patience_s: float, location: Location) -> None:
        """Hold it alone; between having shared it and this, others may have had it.

        Raises:
            RegistryError: others hold it for longer than `patience_s`.
        """
        if self._lock is not None:  # two that share it would wait for each other
            self._lock.release()
        self._hold(patience_s, location, shared=False)

    def close(self) -> None:
        """Let go; a second time does nothing."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _hold(self, patience_s: float, location: Location, *, shared: bool) -> None:
        if self._lock is None:
            try:
                self._lock = KernelLock(self._path, os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK)
            except OSError:
                return  # the database itself will say what is wrong
        end = time.monotonic() + patience_s
        while True:
            try:
                self._lock.take(shared=shared)
            except OSError as error:
                if error.errno not in _TAKEN:
                    return
            else:
                return
            if time.monotonic() > end:
                raise RegistryError(
                    f"the registry {location.shown}: another process has it open, waited "
                    f"{patience_s:g} s"
                )
            time.sleep(_POLL_S)
