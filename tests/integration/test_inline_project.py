"""Sessions that tests run within their own process."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.projects import InlineProject

if TYPE_CHECKING:
    import pytest


def test_folder_of_a_project_is_no_package_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project's folder with the name of one of ours is forgotten with its session."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)
    project = InlineProject(tmp_path)
    project.write("pytest.ini", "[pytest]\naddopts = --import-mode=importlib\n")
    project.write("benchmarks/micro/test_it.py", "def test_it(): pass")
    assert project.run("benchmarks").code == 0
    assert import_module("benchmarks.micro.checks").TOLERANCES
