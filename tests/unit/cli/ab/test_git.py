"""States of a repository, found and checked out without touching the user's tree."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.cli.ab.git import Repository, remove_worktrees
from gpubench_plugin.core.errors import ResultsError

pytestmark = pytest.mark.slow


def repository(repo: Any) -> Repository:
    found = Repository.containing(repo.path / "src")
    assert found is not None
    return found


def test_a_repository_tells_its_changes(repo: Any, tmp_path: Path) -> None:
    """Found from any folder; ignored files do not count."""
    assert repository(repo).top == repo.path
    assert Repository.containing(tmp_path) is None
    repo.write(".gitignore", "*.log\n")
    repo.commit()
    repo.write("noise.log", "x")
    assert repository(repo).changed_files() == 0
    repo.write("new file.txt", "1\n")
    repo.git("mv", "src/mylib/__init__.py", "src/mylib/moved.txt")
    assert repository(repo).changed_files() == 2


def test_an_unknown_ref_names_its_nearest(repo: Any, tmp_path: Path) -> None:
    """A slip is answered with what was meant, a shallow clone is said, a dash is no option."""
    repo.git("tag", "v1.2.0")
    error = str(repository(repo).unknown_ref("v1.2.1", "--base"))
    assert "--base: 'v1.2.1' is neither " in error
    assert "did you mean 'v1" in error
    repo.write("a.py", "")
    repo.commit()
    repo.git("clone", "-q", "--depth=1", f"file://{repo.path}", str(tmp_path / "clone"))
    clone = Repository.containing(tmp_path / "clone")
    assert clone is not None
    error = str(clone.unknown_ref("origin/mian", "--base"))
    assert "git fetch --unshallow" in error
    assert "fetch-depth: 0" in error
    assert "did you mean" not in error  # the history may have the name
    assert repository(repo).commit("--all") is None


def test_a_tree_is_checked_out_and_removed(repo: Any, tmp_path: Path) -> None:
    """Without hooks or changes of the user's; nothing is left; a failure has git's own words."""
    first = repo.git("rev-parse", "HEAD")
    repo.write("src/mylib/__init__.py", "VALUE = 2\n")
    repo.commit()
    repo.write("src/mylib/__init__.py", "VALUE = 3\n")
    hook = repo.path / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch hooked\n")
    hook.chmod(0o755)
    before = (repo.git("status", "--porcelain=v2", "--branch"), repo.git("stash", "list"))
    found, tree = repository(repo), tmp_path / "tree"
    found.check_out(first, tree)
    assert (tree / "src/mylib/__init__.py").read_text() == "VALUE = 1\n"
    assert not (tree / "hooked").exists()
    assert repo.worktrees() == 2
    assert found.common_folder() == repo.path / ".git"
    assert remove_worktrees(repo.path / ".git", [tree])
    assert not tree.exists()
    assert repo.worktrees() == 1
    assert before == (repo.git("status", "--porcelain=v2", "--branch"), repo.git("stash", "list"))
    (tmp_path / "tree").write_text("in the way")
    with pytest.raises(ResultsError, match="worktree add"):
        repository(repo).check_out("HEAD", tmp_path / "tree")


def test_no_other_tree_is_removed(repo: Any, tmp_path: Path) -> None:
    """Only one at the very path: no suffix, no parent, not the user's own tree."""
    tree = tmp_path / "mine/tree"
    repo.git("worktree", "add", "-q", "--detach", str(tree))
    others = [Path("tree"), Path("/tree"), tree.parent, tmp_path, tmp_path / "other"]
    assert remove_worktrees(repo.path / ".git", others)
    assert repo.worktrees() == 2
    assert not remove_worktrees(repo.path / ".git", [repo.path])
    assert (repo.path / ".git/HEAD").exists()
    assert not remove_worktrees(tmp_path / "nowhere", [tree])
    assert (tree / "src/mylib/__init__.py").exists()


def test_a_bare_repository_forgets_its_tree(repo: Any, tmp_path: Path) -> None:
    """Also one whose folder is gone already, and from any of its trees."""
    bare, own, tree = tmp_path / ".bare", tmp_path / "own", tmp_path / "tree"
    repo.git("clone", "-q", "--bare", str(repo.path), str(bare))
    repo.git("-C", str(bare), "worktree", "add", "-q", str(own), "main")
    found = Repository.containing(own)
    assert found is not None
    assert found.common_folder() == bare.resolve()
    found.check_out("HEAD", tree)
    shutil.rmtree(tree)
    assert remove_worktrees(bare, [tree])
    assert [path.name for path in (bare / "worktrees").iterdir()] == ["own"]
