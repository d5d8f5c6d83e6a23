"""Who may have a database file open at the same time."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from gpubench_plugin.core.errors import RegistryError
from gpubench_plugin.results.registry.database import FileLock
from gpubench_plugin.results.registry.locations import location


@pytest.fixture
def locks(tmp_path: Path) -> tuple[FileLock, FileLock]:
    """Two of the same file, as two processes have them."""
    return FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")


def test_two_share_it_and_neither_has_it_alone(
    tmp_path: Path, locks: tuple[FileLock, FileLock]
) -> None:
    """Readers and writers do not wait for each other; who makes it anew waits for all."""
    where = location("", tmp_path)
    first, second = locks
    with closing(first), closing(second):
        first.acquire(0, where, shared=True)
        second.acquire(0, where, shared=True)
        with pytest.raises(RegistryError, match="another process has it open"):
            first.acquire(0, where)
        second.close()
        first.acquire(0, where)
        with pytest.raises(RegistryError, match="another process has it open"):
            second.acquire(0, where, shared=True)
        first.acquire(0, where, shared=True)
        second.acquire(0, where, shared=True)
