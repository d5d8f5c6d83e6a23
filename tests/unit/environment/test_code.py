"""The code files of a project, and the report of their changes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gpubench_plugin.environment import code

CODE = ("conftest.py", "bench/test_it.py", "lib/pkg/__init__.py")
NO_CODE = (
    "notes.txt",
    ".hidden/inside.py",
    "venv/lib/site-packages/installed.py",
    "results/run/written.py",
    "python/os.py",
)


@pytest.fixture
def rootdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with code and with what is none."""
    for name in (*CODE, *NO_CODE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "results/.gitignore").write_text("*\n")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "python"))
    return tmp_path


def test_code_is_every_python_file_of_the_project(rootdir: Path) -> None:
    """Not what is hidden, installed, this Python's, or in a folder that ignores itself."""
    assert set(code.digests(rootdir)) == set(CODE)


def test_folders_without_code_need_not_travel(rootdir: Path) -> None:
    """The topmost of them alone."""
    left_out = {".hidden", "venv/lib/site-packages", "results", "python"}
    assert {*code.folders_without(rootdir)} == left_out


def test_other_content_and_files_that_come_and_go_are_changes(rootdir: Path) -> None:
    """Also a blank alone; a file that is written anew is none."""
    before = code.digests(rootdir)
    (rootdir / "conftest.py").rename(rootdir / "new.py")
    (rootdir / "bench/test_it.py").write_text("bench/test_it.py ")
    (rootdir / "lib/pkg/__init__.py").write_text("lib/pkg/__init__.py")
    assert code.changes(rootdir, before) == [
        "bench/test_it.py (changed)",
        "conftest.py (gone)",
        "new.py (new)",
    ]


def test_links_are_what_they_lead_to(rootdir: Path) -> None:
    """A test module may be a link to a file that changes, and a broken one is no error."""
    (rootdir / "link.py").symlink_to("notes.txt")
    (rootdir / "broken.py").symlink_to("nowhere")
    before = code.digests(rootdir)
    (rootdir / "notes.txt").write_text("other")
    assert code.changes(rootdir, before) == ["link.py (changed)"]


def test_code_is_what_lies_below_in_a_repository_or_not(rootdir: Path) -> None:
    """What lies beside the folder does not count, nor what a link to a folder leads to."""
    (rootdir / ".git").mkdir()
    (rootdir / "bench/lib").symlink_to("../lib")
    assert set(code.digests(rootdir / "bench")) == {"test_it.py"}


@pytest.mark.slow
def test_more_than_a_thousand_files_have_one_hash(tmp_path: Path) -> None:
    """So that those of a large repository do not fill the journal; any change still counts."""
    for number in range(1001):
        (tmp_path / f"{number}.py").touch()
    before = code.digests(tmp_path)
    assert len(before) == 1
    (tmp_path / "7.py").write_text("x")
    assert code.changes(tmp_path, before) == ["more than 1000 *.py files (changed)"]


def test_a_pipe_is_no_code_and_is_not_waited_for(tmp_path: Path) -> None:
    """Whoever opened it would wait for a writer."""
    os.mkfifo(tmp_path / "pipe.py")
    assert code.digests(tmp_path) == {"pipe.py": "no file"}
