"""The temporary folder: nothing of it is left, and nothing that is not of it is ever removed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.cli.ab.git import Repository, temporary_workspace, tree_in

pytestmark = pytest.mark.slow


OCCUPY = """
import os, signal, sys
from pathlib import Path
from gpubench_plugin.cli.ab.git import Repository, temporary_workspace, tree_in
repository = Repository.containing(Path(sys.argv[1]))
with temporary_workspace(repository) as space:
    repository.check_out("HEAD", tree_in(space, "base"))
    repository.check_out("HEAD", tree_in(space, "head"))
    print(tree_in(space, "base"), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = Path(os.path.realpath(tmp_path)) / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def repository(repo: Any) -> Repository:
    found = Repository.containing(repo.path)
    assert found is not None
    return found


def registered(repo: Any) -> str:
    """What git lists, and keeps, of trees."""
    folder = repo.path / ".git/worktrees"
    kept = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return f"{repo.git('worktree', 'list', '--porcelain')}\n{kept}"


@pytest.fixture
def killed(repo: Any) -> Path:
    """The base's tree in the workspace of a process that was killed."""
    command = [sys.executable, "-c", OCCUPY, str(repo.path)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == -signal.SIGKILL, process.stderr
    return Path(process.stdout.strip())


def started_and_ended(found: Repository | None) -> list[str]:
    """What the next comparison says of what it removes."""
    lines: list[str] = []
    with temporary_workspace(found, lines.append) as space:
        if found is not None:
            found.check_out("HEAD", tree_in(space, "base"))
    return lines


def test_an_error_leaves_nothing(repo: Any, temporary: Path) -> None:
    """Trees and folder go however the work ends, with their registrations."""
    found, before = repository(repo), registered(repo)

    def interrupted() -> None:
        with temporary_workspace(found) as space:
            for side in ("base", "head"):
                found.check_out("HEAD", tree_in(space, side))
            (tree_in(space, "base") / "left behind").write_text("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(temporary.iterdir()) == []
    assert registered(repo) == before


def test_what_a_killed_process_left_is_removed_and_said(
    repo: Any, temporary: Path, killed: Path
) -> None:
    """Trees, registrations and folder go when the next one starts, in any repository or none."""
    (killed / "src/mylib/__init__.py").unlink()
    assert repo.worktrees() == 3
    assert started_and_ended(None) == [f"removed {killed.parent}, left over by a killed comparison"]
    assert list(temporary.iterdir()) == []
    assert repo.worktrees() == 1


def test_a_registration_outlives_its_tree_no_longer_than_the_folder(
    repo: Any, temporary: Path, killed: Path
) -> None:
    """Whoever cleans temporary folders does not know git."""
    shutil.rmtree(killed)
    (killed.with_name(killed.name.replace("base", "head")) / ".git").unlink()
    assert len(started_and_ended(repository(repo))) == 1
    assert list(temporary.iterdir()) == []
    assert repo.worktrees() == 1


def test_a_workspace_that_git_cannot_forget_yet_is_kept(
    repo: Any, temporary: Path, killed: Path
) -> None:
    """A repository on a disk that is away is asked again at a later start."""
    away = repo.path.with_name("away")
    repo.path.rename(away)
    assert started_and_ended(None) == []
    assert not killed.exists()
    assert killed.parent.exists()
    away.rename(repo.path)
    assert len(started_and_ended(None)) == 1
    assert list(temporary.iterdir()) == []
    assert repo.worktrees() == 1


def test_what_was_killed_on_another_host_is_left_to_it(
    repo: Any, killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shared folder for temporary files: the lock of another host may not be seen here."""
    monkeypatch.setattr("socket.gethostname", lambda: "another")
    assert started_and_ended(repository(repo)) == []
    assert killed.exists()


def test_a_living_one_is_left_alone(repo: Any) -> None:
    """By another comparison, and by git where its folder is not there."""
    found = repository(repo)
    with temporary_workspace(found) as first:
        found.check_out("HEAD", tree_in(first, "base"))
        assert started_and_ended(found) == []
        assert repo.git("-C", str(tree_in(first, "base")), "rev-parse", "HEAD")
        assert repo.worktrees() == 2
    found = repository(repo)
    with temporary_workspace(found) as space:
        found.check_out("HEAD", tree_in(space, "base"))
        away = space.with_name("away")
        space.rename(away)
        repo.git("worktree", "prune", "--expire=now")
        repo.git("gc", "-q", "--prune=now")
        assert started_and_ended(found) == []
        away.rename(space)
        assert repo.git("-C", str(tree_in(space, "base")), "rev-parse", "HEAD")
    assert repo.worktrees() == 1


@pytest.mark.parametrize("place", ["elsewhere", "temporary"])
def test_a_tree_of_the_user_is_left_alone(repo: Any, tmp_path: Path, place: str) -> None:
    """With what is uncommitted in it and what lies beside it, whatever its folder is called."""
    work = tmp_path / place / "gpubench-ab-work"
    work.mkdir(parents=True, mode=0o700)
    repo.git("worktree", "add", "-q", "-b", "mine", str(work / "mytree"))
    (work / "mytree/new.py").write_text("mine")
    (work / "other-stuff.txt").write_text("mine")
    os.utime(work, (0, 0))
    before = everything_in(work)
    assert started_and_ended(repository(repo)) == []
    assert everything_in(work) == before
    assert repo.worktrees() == 2


def everything_in(folder: Path) -> dict[str, bytes]:
    """All files by name; what git writes down of a read is left out."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): path.read_bytes() for path in files if path.name != "index"}
