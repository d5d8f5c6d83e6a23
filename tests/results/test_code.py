"""Tests of which files are the code of a run, and of what is said when they change."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.results import code

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = {
    "conftest.py": "import rooted",
    "rooted.py": "",
    "bench/conftest.py": "",
    "bench/test_it.py": """
import os, torch; import typing as t, plain as p
from . import beside
def test_it(gpubench):
    from pkg.sub import (  # inside of a function
        deep as d,
        VALUE,
    )
    from pkg \\
        import other
    import spaced.module
""",
    "bench/beside.py": "from .. import nothing",
    "plain.py": "from pkg import *",
    "pkg/__init__.py": "",
    "pkg/other.py": "import unknown_to_all",
    "pkg/sub/__init__.py": "from .near import thing",
    "pkg/sub/near.py": "from ..up import thing",
    "pkg/sub/deep.py": "import pkg.sub.deep",
    "pkg/up.py": "thing = 1",
    "spaced/module.py": "",
    "unused.py": "",
    "bench/test_other.py": "import unused",
    "other/conftest.py": "",
    ".hidden/inside.py": "",
    "venv/lib/site-packages/installed.py": "",
    "by_name.py": "",
}
CODE = {*list(FILES)[:13]}
IDS = ("bench/test_it.py::test_it[fp32-ws1]", "bench/test_it.py::test_it[amp-ws1]")


@pytest.fixture
def rootdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project whose benchmarks have been collected, with what that has imported."""
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for folder in ("venv/lib/site-packages", ".hidden", ""):
        monkeypatch.syspath_prepend(tmp_path / folder)
    loaded = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - loaded:
        del sys.modules[name]


def test_code_is_what_benchmarks_import_from_the_project(rootdir: Path) -> None:
    """Also in functions, by relative and star imports, on the way to a module; no other test's."""
    assert set(code.digests(rootdir, IDS)) == CODE
    assert not {"rooted", "pkg", "spaced"} & set(sys.modules), "nothing is imported for it"


def test_code_is_whatever_is_loaded_from_the_project(rootdir: Path) -> None:
    """A module that was imported by a computed name counts; what is installed there does not."""
    for name in ("by_name", "installed", "inside"):
        importlib.import_module(name)
    assert set(code.digests(rootdir, IDS)) == CODE | {"by_name.py"}


def test_environment_of_this_python_is_no_code(
    rootdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it lies in the project, and whatever its folders are called."""
    monkeypatch.setattr(sys, "prefix", str(rootdir / "pkg"))
    assert set(code.digests(rootdir / "", IDS)) == {n for n in CODE if not n.startswith("pkg/")}


@pytest.mark.parametrize("name", sorted(CODE))
def test_any_other_content_is_a_change(rootdir: Path, name: str) -> None:
    """Also of blanks alone, whatever the file's size and time say."""
    before = code.digests(rootdir, IDS)
    file = rootdir / name
    file.write_text(file.read_text() + " ")
    assert code.changes(rootdir, IDS, before) == [f"{name} (changed)"]
    file.write_text(FILES[name])
    assert not code.changes(rootdir, IDS, before), "a file that is written anew is none"


def test_files_that_come_and_go_are_changes(rootdir: Path) -> None:
    """A file that shadows another counts, as does a conftest above the benchmarks."""
    (rootdir / "bench/conftest.py").unlink()
    before = code.digests(rootdir, IDS)
    (rootdir / "bench/conftest.py").write_text("")
    (rootdir / "plain").mkdir()
    (rootdir / "plain/__init__.py").write_text("")
    (rootdir / "rooted.py").unlink()
    importlib.invalidate_caches()
    assert code.changes(rootdir, IDS, before) == [
        "bench/conftest.py (new)",
        "plain/__init__.py (new)",
        "rooted.py (gone)",
    ]


def test_other_tests_beside_are_no_change(rootdir: Path) -> None:
    """Who selects with ``-k`` from more files than at first loads more, and measures the same."""
    before = code.digests(rootdir, IDS)
    importlib.import_module("unused")
    assert not code.changes(rootdir, IDS, before)
    assert code.changes(rootdir, [*IDS, "bench/test_other.py::test_it"], before) == [
        "bench/test_other.py (new)",
        "unused.py (new)",
    ]


def test_links_are_what_they_lead_to(rootdir: Path) -> None:
    """A test module may be a link to a file that changes."""
    (rootdir / "bench/test_it.py").rename(rootdir / "source.txt")
    (rootdir / "bench/test_it.py").symlink_to("../source.txt")
    before = code.digests(rootdir, IDS)
    (rootdir / "source.txt").write_text(FILES["bench/test_it.py"] + " ")
    assert code.changes(rootdir, IDS, before) == ["bench/test_it.py (changed)"]
