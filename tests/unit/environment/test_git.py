"""Tests of the facts about the commit, with real repositories."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.environment.code import commit_facts
from tests.support.git import git

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-b", "trunk")
    (folder / "file").write_text("one")
    git(folder, "add", "file")
    git(folder, "commit", "-m", "One")
    return folder


def test_commit_and_branch(repository: Path) -> None:
    """Those checked out; new files do not count as changes."""
    facts = {"commit": git(repository, "rev-parse", "HEAD"), "branch": "trunk", "remote": None}
    (repository / "new").touch()
    assert commit_facts(repository) == {**facts, "dirty": False}
    (repository / "file").write_text("two")
    assert commit_facts(repository) == {**facts, "dirty": True}


@pytest.mark.parametrize(
    ("environ", "branch"),
    [
        ({"GITHUB_REF_NAME": "main", "GITHUB_REF_TYPE": "branch"}, "main"),
        ({"GITHUB_REF_NAME": "12/merge", "GITHUB_HEAD_REF": "main"}, "12/merge"),
        ({"GITHUB_REF_NAME": "v1", "GITHUB_REF_TYPE": "tag"}, None),
        ({"CI_COMMIT_BRANCH": "main", "CI_COMMIT_REF_NAME": "other"}, "main"),
        ({}, None),
    ],
)
def test_ci_names_the_branch_that_is_not_checked_out(
    repository: Path, environ: dict[str, str], branch: str | None
) -> None:
    """A change from elsewhere is never taken for the branch; one that is checked out outranks."""
    attached = commit_facts(repository, environ={"CI_COMMIT_BRANCH": "x"})
    git(repository, "checkout", "--detach")
    detached = commit_facts(repository, environ=environ)
    assert [facts and facts["branch"] for facts in (attached, detached)] == ["trunk", branch]


def test_remote_has_no_credentials(repository: Path) -> None:
    """User and password in the remote's address are not recorded."""
    git(repository, "remote", "add", "origin", "https://me:hunter2@example.org/x.git")
    facts = commit_facts(repository)
    assert facts is not None
    assert facts["remote"] == "https://***@example.org/x.git"


def test_hook_of_another_repository_does_not_mislead(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables that a git hook exports do not lead to the hook's repository."""
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    facts = commit_facts(repository)
    assert facts is not None
    assert facts["branch"] == "trunk"


def test_outside_a_repository_nothing_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a repository, or without git, there are no facts."""
    assert commit_facts(tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_facts(tmp_path) is None


def test_what_ci_tells_git_by_variables_holds(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container whose checkout has another owner needs a ``safe.directory``, given so."""
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "remote.origin.url")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://example.org/it.git")
    facts = commit_facts(repository)
    assert facts is not None
    assert facts["remote"] == "https://example.org/it.git"
