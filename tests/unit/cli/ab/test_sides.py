"""What ``--base`` and ``--head`` mean."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.cli.ab.git import Repository
from gpubench_plugin.cli.ab.sides import Side, resolve_side
from gpubench_plugin.core.errors import UsageProblem

pytestmark = pytest.mark.slow


def base(text: str | None, here: Path, *, python: str | None = None) -> Side:
    return resolve_side("base", text, python, cwd=here, repository=Repository.containing(here))


def test_a_ref_is_a_commit(repo: Any) -> None:
    """It is shown with it and goes before a folder of its name; a branch that moves is another."""
    found = base("main", repo.path)
    assert found.commit == repo.git("rev-parse", "HEAD")
    assert found.label == f"main ({found.commit[:9]})"
    assert found.identity() == {"commit": found.commit, "python": sys.executable}
    (repo.path / "main").mkdir()
    assert base("main", repo.path).commit is not None
    assert base("./main", repo.path).tree == repo.path / "main"
    before = base("main", repo.path)
    repo.write("new.py", "")
    repo.commit()
    assert base("main", repo.path).identity() != before.identity()
    before.require_unchanged()


def test_nothing_is_the_working_tree_with_its_changes(repo: Any) -> None:
    """Its name has the commit, or a count of the uncommitted changes, part of its identity."""
    clean = base(None, repo.path / "src")
    identity = clean.identity()
    assert (clean.tree, clean.folder) == (repo.path, repo.path / "src")
    assert clean.label == f"working tree ({repo.git('rev-parse', 'HEAD')[:9]})"
    repo.write("src/mylib/__init__.py", "VALUE = 2\n")
    changed = base(None, repo.path)
    assert changed.label == "working tree (1 changed file)"
    assert changed.identity() != identity


def test_a_folder_is_taken_as_it_is(repo: Any, tmp_path: Path) -> None:
    """Its Python files are its identity; a log beside them is none of it."""
    folder = tmp_path / "copy"
    folder.mkdir()
    (folder / "a.py").write_text("1")
    before = base("../copy", repo.path)
    assert (before.tree, before.commit, before.label) == (folder.resolve(), None, "../copy")
    (folder / "ab.log").write_text("x")
    assert base("../copy", repo.path) == before
    (folder / "a.py").write_text("2")
    assert base("../copy", repo.path).identity() != before.identity()
    with pytest.raises(UsageProblem, match=r"changed after the comparison started.*: a\.py"):
        before.require_unchanged()


def refused(here: Path, base: str, head: str | None, python: str | None = None) -> bool:
    """Whether the two are the same: by this Python, of the base by `python` if that is given."""
    repository = Repository.containing(here)
    sides = (
        resolve_side("base", base, python, cwd=here, repository=repository),
        resolve_side("head", head, None, cwd=here, repository=repository),
    )
    try:
        sides[0].refuse_same(sides[1])
    except UsageProblem as error:
        return "--same" in str(error)
    return False


def test_the_same_code_and_python_are_nothing_to_compare(repo: Any, tmp_path: Path) -> None:
    """By commit, working tree or copy; a change, even of no code, or another Python is one."""
    here = repo.path
    (here / ".git/info/exclude").write_text("ignored\n")
    (here / "ignored").touch()
    repo.git("commit", "--allow-empty", "-q", "-m", "no change")
    assert refused(here, "main", None)
    assert refused(here, "main", "main~1")
    assert refused(here, ".", None)
    assert not refused(here, "main", None, "git")
    shutil.copytree(here, tmp_path / "copy", ignore=shutil.ignore_patterns(".git"))
    for name in ("__pycache__/x.cpython-311.pyc", ".pytest_cache/x"):
        repo.write(f"src/mylib/{name}", "")
    assert refused(here, "../copy", "./")
    repo.write("size.yaml", "1")
    assert not refused(here, "main", None)
    assert refused(here, ".", None)
    (tmp_path / "copy/size.yaml").write_text("2")
    assert not refused(here, "../copy", "./")
    repo.commit()
    assert not refused(here, "main", "main~1")


@pytest.mark.parametrize("text", ["", "nothing", "./nothing"])
def test_what_does_not_exist_is_refused(repo: Any, text: str) -> None:
    """Neither a folder nor a ref: one message that names the option."""
    with pytest.raises(UsageProblem, match=r"^--base:"):
        base(text, repo.path)


def test_pytest_runs_where_the_user_stands(repo: Any, tmp_path: Path) -> None:
    """In the same folder below each tree; in an empty one where a commit does not have it."""
    found = base("main", repo.path)
    ready = found.checked_out(tmp_path / "tree", Path("src"))
    assert ready.folder == tmp_path / "tree/src"
    assert ready.import_roots() == [tmp_path / "tree/src", tmp_path / "tree"]
    ready = found.checked_out(tmp_path / "again", Path("else/where"))
    assert [*ready.folder.iterdir()] == []
    (tmp_path / "copy").mkdir()
    assert base(str(tmp_path / "copy"), repo.path / "src").folder == tmp_path / "copy"


def test_a_python_must_run(repo: Any, tmp_path: Path) -> None:
    """An interpreter is named by its path or found on the PATH; without git there are no refs."""
    link = repo.path / "py"
    link.symlink_to(sys.executable)
    assert base("main", repo.path, python="./py").python == str(link)
    with pytest.raises(UsageProblem, match=r"--base-python: './none'"):
        base("main", repo.path, python="./none")
    with pytest.raises(UsageProblem, match="not in a git repository"):
        base("main", tmp_path)


def test_files_that_change_meanwhile_are_named(repo: Any) -> None:
    """With what to do about them; where another commit was checked out, that is said."""
    found = base(None, repo.path)
    repo.write("report.xml", "no code")
    found.require_unchanged()
    for number in range(6):
        repo.write(f"new{number}.py", "x")
    repo.write("src/mylib/__init__.py", "VALUE = 2\n")
    with pytest.raises(UsageProblem, match=r": new0\.py \(new\), .*and 2 more\. If .*elsewhere"):
        found.require_unchanged()
    found = base(None, repo.path)
    repo.commit()
    with pytest.raises(UsageProblem, match="another commit is checked out"):
        found.require_unchanged()
