"""Where a comparison is kept, and what can go wrong before a launch."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.cli.ab.comparison import compare, new_state, resolve_sides
from gpubench_plugin.cli.ab.request import Request
from gpubench_plugin.cli.ab.runner import Progress
from gpubench_plugin.cli.ab.saved_state import STATE_FILE, SavedState
from gpubench_plugin.core.errors import UsageProblem

pytestmark = pytest.mark.slow


def begun(folder: Path, asked: Request) -> SavedState:
    return new_state(folder, asked, resolve_sides(asked))


def compared(state: SavedState, asked: Request) -> None:
    compare(state, resolve_sides(asked), Progress(io.StringIO()))


def test_results_are_no_changes_of_the_tree(repo: Any, tmp_path: Path) -> None:
    """They do not show up in git, nor make the head differ; a file in their place is an error."""
    asked = Request(here=repo.path, base="main")
    state = begun(repo.path / "results", asked)
    assert state.folder.parent == repo.path / "results/ab"
    assert repo.git("status", "--porcelain") == ""
    assert begun(repo.path / "results", asked).identity == state.identity
    (tmp_path / "results").touch()
    with pytest.raises(NotADirectoryError):
        begun(tmp_path / "results", Request(here=repo.path, base="main"))


def test_what_was_asked_is_remembered(repo: Any, tmp_path: Path) -> None:
    """--resume needs nothing but the folder; a record of something else is not guessed at."""
    asked = Request(here=repo.path, base="main", pairs=5, arguments=("bench", "-k", "a b"))
    state = begun(tmp_path, asked)
    assert SavedState.read(state.folder) == state
    assert state.request == asked
    file = state.folder / STATE_FILE
    file.write_text(file.read_text().replace('"main"', "5"))
    with pytest.raises(UsageProblem, match=r"violates the schema at asked\.base: "):
        SavedState.read(state.folder)


def test_other_code_is_not_resumed(repo: Any, tmp_path: Path) -> None:
    """What differs is named; so are the files, where they change while both sides are measured."""
    asked = Request(here=repo.path, base="main")
    state = begun(tmp_path / "results", asked)
    sources = resolve_sides(asked)
    repo.write("src/mylib/new.py", "VALUE = 2")
    with pytest.raises(UsageProblem, match=r"^--resume=.* head\.code"):
        compared(state, asked)
    with pytest.raises(UsageProblem, match=r"^the files of the head .*: src/mylib/new\.py \(new\)"):
        compare(state, sources, Progress(io.StringIO()))


def test_errors_of_the_system_keep_their_kind(
    repo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is no bad usage: the message names the file, and nothing is left in git."""
    asked = Request(here=repo.path, base="main")

    def full(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr("gpubench_plugin.cli.ab.launch.shutil.copyfile", full)
    with pytest.raises(OSError, match=r"No space left .*gpubench_ab_probe\.py"):
        compared(begun(tmp_path, asked), asked)
    assert repo.worktrees() == 1
