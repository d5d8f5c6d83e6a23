"""The temporary folder, and that nothing of it is left."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.ab.git import Repository
from gpubench_plugin.ab.workspace import remove_abandoned, workspace


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def repository(repo: Any) -> Repository:
    found = Repository.around(repo.path)
    assert found is not None
    return found


def test_an_error_leaves_nothing(repo: Any, temporary: Path) -> None:
    """Trees and folder go however the work ends."""
    found = repository(repo)

    def interrupted() -> None:
        with workspace(found) as space:
            found.check_out("HEAD", space.tree("base"))
            (space.tree("base") / "left behind").write_text("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(temporary.iterdir()) == []
    assert repo.worktrees() == 1


def test_what_a_killed_process_left_is_removed(repo: Any, temporary: Path) -> None:
    """Its lock is free: trees, registration and folder go when the next one starts."""
    found, left = repository(repo), temporary / "gpubench-ab-dead"
    left.mkdir()
    (left / "lock").touch()
    found.check_out("HEAD", left / "base")
    found.check_out("HEAD", left / "head")
    (left / "base/src/mylib/__init__.py").unlink()
    repo.git("worktree", "lock", str(left / "head"))
    with workspace(found) as space:
        assert list(temporary.iterdir()) == [space.path]
    assert repo.worktrees() == 1


def test_a_registration_without_its_folder_is_removed(repo: Any, temporary: Path) -> None:
    """Whoever cleans temporary folders does not know git."""
    found, left = repository(repo), temporary / "gpubench-ab-gone"
    left.mkdir()
    found.check_out("HEAD", left / "base")
    (left / "base").rename(temporary / "elsewhere")
    left.rmdir()
    remove_abandoned(found)
    assert repo.worktrees() == 1


def test_a_living_one_is_left_alone(repo: Any) -> None:
    """Two comparisons of one repository do not disturb each other."""
    found = repository(repo)
    with workspace(found) as first:
        found.check_out("HEAD", first.tree("base"))
        with workspace(found):
            assert first.tree("base").is_dir()
            assert repo.worktrees() == 2


def test_without_git_old_folders_are_removed_by_their_lock(temporary: Path) -> None:
    """A folder that is too young for its lock is not taken away."""
    old, young = temporary / "gpubench-ab-old", temporary / "gpubench-ab-young"
    for path in (old, young):
        path.mkdir()
    an_hour_ago = time.time() - 3600
    os.utime(old, (an_hour_ago, an_hour_ago))
    assert remove_abandoned(None) == [old]
    assert young.is_dir()
