"""Tests of the code files of a run, and of the report of their changes."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Never

import pytest

from gpubench_plugin.environment import code

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


@pytest.mark.parametrize(
    "text",
    [
        's = "#"; from pk import a',
        'u = "http://x#y"; import pk.a',
        "from pk.\\\n    deep import a",
        "from pk.\\\r\n    deep import a\r\n",
        "from \\\r\n    pk import \\\r\n    a\r\n",
        "import os, \\\r\n    pk . a as b\r\n",
        "from pk import (  # an (old) one, \n    a as b,)",
        "# a comment ends with its line \\\nimport pk.a",
        "\ufeffimport pk.a",
        'def test(): pytest.importorskip("pk.a")',
        "m = importlib.import_module(\n    'pk.a')",
        'm = import_module(name="pk.a")',
        'm = __import__("pk.a")',
        'm = importlib.import_module(".pk.a", package=__package__)',
    ],
)
def test_imports_are_found_however_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """With ``#`` in strings, line continuations of any system, and literal names in calls."""
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("pk/__init__.py", "pk/a.py", "pk/deep/__init__.py", "pk/deep/a.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "test_it.py").write_bytes(text.encode())
    package = {"pk/__init__.py"}
    expected = package | (
        {"pk/deep/__init__.py", "pk/deep/a.py"} if "deep" in text else {"pk/a.py"}
    )
    assert set(code.digests(tmp_path, ["test_it.py::test_it"])) == expected | {"test_it.py"}


def test_code_is_all_of_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the root folder imports from above counts, in git or not; hidden and installed does not.

    As with ``pythonpath = ..`` in an ini file, names are as seen from the root folder.
    """
    repository = tmp_path / "repository"
    rootdir = repository / ".work" / "benchmarks"
    rootdir.mkdir(parents=True)
    (repository / ".git").mkdir()
    (repository / "lib" / "site-packages").mkdir(parents=True)
    for folder in (tmp_path, repository / ".work", repository / "lib" / "site-packages"):
        (folder / f"of_{folder.name.strip('.').replace('-', '_')[:4]}.py").write_text("")
        monkeypatch.syspath_prepend(folder)
    (repository / "mylib.py").write_text("import above")
    (repository / "above.py").write_text("")
    (repository / "conftest.py").write_text("")
    monkeypatch.syspath_prepend(rootdir / ".." / "..")
    names = ", ".join(file.stem for file in tmp_path.rglob("of_*.py"))
    (rootdir / "test_b.py").write_text(f"import mylib, {names}")

    before = code.digests(rootdir, ["test_b.py::test_b"])

    assert set(before) == {"test_b.py", "../../mylib.py", "../../above.py"}
    (repository / "above.py").write_text("1")
    changes = code.changes(rootdir, ["test_b.py::test_b"], before)
    assert changes == ["../../above.py (changed)"]


def test_arrivals_are_what_is_loaded_from_now_on(rootdir: Path) -> None:
    """Each look tells of what has come since the last one, and of the project alone."""
    importlib.import_module("plain")
    arrivals = code.LoadedFiles(rootdir)
    assert not arrivals.newly_loaded()
    for name in ("by_name", "installed", "inside"):
        importlib.import_module(name)
    assert arrivals.newly_loaded() == {"by_name.py": code.digests(rootdir, IDS)["by_name.py"]}
    importlib.import_module("unused")
    assert set(arrivals.newly_loaded()) == {"unused.py"}
    assert not arrivals.newly_loaded()


def test_look_at_nothing_new_looks_at_no_module(
    rootdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is done after every benchmark, and there are thousands of modules."""

    class Counted(dict[str, object]):
        """As many modules as ever, which must not be asked for."""

        def keys(self) -> Never:
            raise AssertionError

        __iter__ = values = items = keys

    arrivals = code.LoadedFiles(rootdir)
    monkeypatch.setattr(code, "sys", SimpleNamespace(modules=Counted(sys.modules)))
    assert arrivals.newly_loaded() == {}


def test_file_that_changed_during_the_run_is_a_change(rootdir: Path) -> None:
    """Of two ranks or launches that loaded it differently, no file is like both."""
    before = code.digests(rootdir, IDS)
    united = code.merge_digests(
        [before, {"plain.py": "0123456789abcdef"}, {"rooted.py": before["rooted.py"]}]
    )
    assert code.changes(rootdir, IDS, united) == ["plain.py (changed)"]
