"""The plugin in every launch, loaded by its file in a pytest of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpubench_plugin.cli.ab import launch_plugin

pytestmark = pytest.mark.slow


TESTS = """
import pytest

@pytest.mark.parametrize("kind", ["a b", "x::y", "[q]'", "ü", "1", "10"])
def test_kind(kind):
    import helper
"""


def probed(folder: Path, *arguments: str, side: str = "base") -> subprocess.CompletedProcess[str]:
    """A pytest with the plugin, in ``tree`` below the `folder`."""
    options = ["-v", "-p", "gpubench_ab_probe", "-p", "no:gpubench", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments],
        cwd=folder / "tree",
        env={
            **os.environ,
            "PYTHONPATH": str(folder / "probe"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "GPUBENCH_AB_PARENT": str(os.getpid()),
            "GPUBENCH_AB_LEAVE_OUT": str(folder / "left-out.json"),
            "GPUBENCH_AB_REPORT": str(folder / "report"),
            "GPUBENCH_AB_TREE": str(folder / "tree"),
            "GPUBENCH_AB_SIDE": side,
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One with the plugin, a tree with a test, and nothing to leave out."""
    for name in ("report", "tree", "probe"):
        (tmp_path / name).mkdir()
    shutil.copyfile(launch_plugin.__file__, tmp_path / "probe/gpubench_ab_probe.py")
    (tmp_path / "tree/pytest.ini").write_text("[pytest]\n")
    (tmp_path / "tree/helper.py").touch()
    (tmp_path / "tree/test_it.py").write_text(TESTS)
    (tmp_path / "left-out.json").write_text("[]")
    return tmp_path


def test_exactly_the_named_tests_are_left_out(folder: Path) -> None:
    """Brackets, spaces, colons and quotes in ids are taken as they are; -k still applies."""
    left_out = [
        "test_it.py::test_kind[a b]",
        "test_it.py::test_kind[[q]']",
        "test_it.py::test_kind[1]",
    ]
    (folder / "left-out.json").write_text(json.dumps(left_out))
    done = probed(folder, "-k", "not x::y and not xfc")
    assert "test_kind[10] PASSED" in done.stdout, done.stdout + done.stderr
    assert "1 passed, 5 deselected" in done.stdout
    (file,) = (folder / "report").iterdir()
    told = json.loads(file.read_text())
    assert told["tests"] == {"test_it.py::test_kind[10]": ["test_it.py", 4]}
    assert told["rootdir"] == str(folder / "tree")
    assert told["modules"]["helper"] == str(folder / "tree/helper.py")


@pytest.mark.parametrize(
    ("arguments", "side", "code", "said"),
    [
        (("added", "added/test_a.py::test_a[x/y]"), "base", 5, "collected 0 items"),
        (("added", "test_it.py::test_kind[1]"), "base", 0, "1 passed"),
        (("added",), "head", 4, "file or directory not found: added"),
        (("test_it.py", "--pyargs", "added"), "base", 4, "not found: added"),
        (("--nonsense",), "base", 4, "unrecognized arguments: --nonsense"),
    ],
)
def test_paths_that_the_base_lacks_select_nothing_there(
    folder: Path, arguments: tuple[str, ...], side: str, code: int, said: str
) -> None:
    """The others still do; on the head they are refused, as any other mistake on both sides."""
    done = probed(folder, *arguments, side=side)
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done


def test_a_failure_is_reported_with_the_last_line_of_own_code(folder: Path) -> None:
    """In a helper, or where something installed was called; a test that passes with its own."""
    package = folder / "tree/.venv/site-packages"
    package.mkdir(parents=True)
    (package / "installed.py").write_text("def check(value):\n    assert value\n")
    (folder / "tree/helper.py").write_text(
        "import installed\n\ndef ask(value):\n    check(value)\n"
    )
    with (folder / "tree/helper.py").open("a") as helper:
        helper.write("\ndef check(value):\n    installed.check(value)\n")
    lines = ["import json, helper", "def test_a(): helper.ask(0)", "def test_b(): json.loads('')"]
    lines += ["def test_c(): helper.ask(1)", "def test_d(missing): pass"]
    (folder / "tree/test_it.py").write_text("\n".join(lines))
    (folder / "tree/pytest.ini").write_text("[pytest]\npythonpath = .venv/site-packages .\n")
    assert probed(folder).returncode == 1
    (file,) = (folder / "report").iterdir()
    tests = json.loads(file.read_text())["tests"]
    assert {name.rpartition("_")[2]: place for name, place in tests.items()} == {
        "a": ["helper.py", 7],
        "b": ["test_it.py", 3],
        "c": ["test_it.py", 4],
        "d": ["test_it.py", 5],
    }
