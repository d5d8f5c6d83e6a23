"""Where a comparison is kept, and what can go wrong before a launch."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.cli.ab.comparison import compare, load_state, new_state
from gpubench_plugin.cli.ab.progress import Progress
from gpubench_plugin.cli.ab.request import Request
from gpubench_plugin.core.errors import ResultsError, UsageProblem

pytestmark = pytest.mark.slow


def test_results_are_no_changes_of_the_tree(repo: Any) -> None:
    """Kept inside the repository, they do not show up in git, nor do they make the head differ."""
    state = new_state(repo.path / "results", Request(here=repo.path, base="main"))
    assert state.folder.parent == repo.path / "results/ab"
    assert repo.git("status", "--porcelain") == ""
    again = new_state(repo.path / "results", Request(here=repo.path, base="main"))
    assert again.identity == state.identity


def test_what_was_asked_is_remembered(repo: Any, tmp_path: Path) -> None:
    """--resume needs nothing but the folder."""
    asked = Request(here=repo.path, base="main", pairs=5, arguments=("bench", "-k", "a b"))
    state = new_state(tmp_path, asked)
    again, before = load_state(state.folder)
    assert before == asked
    assert again == state


def test_a_record_of_something_else_is_refused(repo: Any, tmp_path: Path) -> None:
    """A state whose options are unknown is not guessed at."""
    state = new_state(tmp_path, Request(here=repo.path, base="main"))
    state.request = {"here": "/", "colour": "red"}
    state.write()
    with pytest.raises(UsageProblem, match=r"the stored request violates the schema at base"):
        load_state(state.folder)


def test_a_new_comparison_names_the_files_that_changed(repo: Any, tmp_path: Path) -> None:
    """A log of a pipe grows in the tree as soon as one says something: it is named."""
    repo.write("ab.log", "")
    asked = Request(here=repo.path, base="main")
    state = new_state(tmp_path / "results", asked)
    repo.write("ab.log", "gpubench ab: results in")
    with pytest.raises(UsageProblem, match=r"^the files of the head in .*: ab\.log\. If") as said:
        compare(state, asked, Progress(io.StringIO()))
    assert "--resume" not in str(said.value)
    again, before = load_state(state.folder)
    with pytest.raises(UsageProblem, match=r"^--resume=.* head\.changes"):
        compare(again, before, Progress(io.StringIO()))


def test_a_file_in_the_way_is_said(repo: Any, tmp_path: Path) -> None:
    """The results folder may be a file by mistake."""
    (tmp_path / "results").touch()
    with pytest.raises(ResultsError, match="cannot create"):
        new_state(tmp_path / "results", Request(here=repo.path, base="main"))


def test_errors_of_the_system_keep_their_kind(
    repo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is no bad usage: the message names the file, and nothing is left in git."""
    asked = Request(here=repo.path, base="main")
    state = new_state(tmp_path, asked)

    def full(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr("gpubench_plugin.cli.ab.comparison.shutil.copyfile", full)
    with pytest.raises(ResultsError, match=r"gpubench_ab_probe\.py: No space left"):
        compare(state, asked, Progress(io.StringIO()))
    assert repo.worktrees() == 1
