"""The temporary folder of a comparison: trees checked out, byte code, caches; gone at the end."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpubench_plugin.ab.git import Repository
from gpubench_plugin.ab.signals import unheard
from gpubench_plugin.errors import ResultsError
from gpubench_plugin.kernel_lock import KernelLock

_PREFIX: Final = "gpubench-ab-"
_LOCK: Final = "lock"
_YOUNG_S: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """A folder of this process alone, outside of the user's tree."""

    path: Path

    def tree(self, name: str) -> Path:
        """Where the tree of that side is checked out."""
        return self.path / name

    @property
    def byte_code(self) -> Path:
        """Where Python keeps what it compiled, of both sides: by the path of each source."""
        return self.path / "pycache"

    @property
    def storage(self) -> Path:
        """Where pytest-benchmark makes a folder for what it is asked to keep."""
        return self.path / "benchmarks"

    def cache(self, name: str) -> Path:
        """Where pytest keeps its cache of that side."""
        return self.path / f"pytest-cache-{name}"


@contextmanager
def workspace(repository: Repository | None) -> Iterator[Workspace]:
    """A new workspace; nothing of it is left in the end, nor of one whose process was killed.

    Raises:
        ResultsError: the temporary folder cannot be written.
    """
    remove_abandoned(repository)
    try:
        path = Path(os.path.realpath(tempfile.mkdtemp(prefix=_PREFIX)))
        held = KernelLock(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        held.take(wait=True)
    except OSError as error:
        raise ResultsError(f"no temporary folder: {error.strerror}") from error
    try:
        yield Workspace(path=path)
    finally:
        with unheard():
            _remove(path, repository)
            held.close()


def remove_abandoned(repository: Repository | None) -> list[Path]:
    """Remove the workspaces whose process is gone, their trees of `repository` too; returned."""
    trees = [] if repository is None else repository.checked_out()[1:]
    registered = {tree.parent for tree in trees if tree.parent.name.startswith(_PREFIX)}
    found = {path for path in registered | _old_ones() if _abandoned(path)}
    for path in found:
        _remove(path, repository)
    return sorted(found)


def _old_ones() -> set[Path]:
    """This user's workspaces that are past the moment in which they are not locked yet."""
    found = set()
    for path in Path(os.path.realpath(tempfile.gettempdir())).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            facts = path.lstat()
            old = time.time() - facts.st_mtime > _YOUNG_S
            if old and stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid():
                found.add(path)
    return found


def _abandoned(path: Path) -> bool:
    """Whether nobody holds its lock: the kernel lets go of it with the process."""
    try:
        with KernelLock(path / _LOCK, os.O_RDWR) as held:
            held.take()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _remove(path: Path, repository: Repository | None) -> None:
    trees = []
    if repository is not None:
        trees = [tree for tree in repository.checked_out() if tree.parent == path]
        for tree in trees:
            repository.remove(tree)
    shutil.rmtree(path, ignore_errors=True)
    for tree in trees:
        if repository is not None:
            repository.forget(tree)
