"""Which benchmarks of a baseline are gone."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core import hookspecs
from gpubench_plugin.session.gate.plugin import RemovedBenchmarks

if TYPE_CHECKING:
    from pathlib import Path


class Item:
    """A collected test of a module with `test_kept` and `TestX.test_kept`."""

    def __init__(self, path: Path):
        self.path = path
        self.nodeid = f"{path.name}::test_kept[a]"

    def getparent(self, kind: type) -> SimpleNamespace:
        inner = SimpleNamespace(test_kept=1)
        return SimpleNamespace(obj=SimpleNamespace(test_kept=1, TestX=inner))


def removal(folder: Path, *arguments: str, importmode: str = "prepend") -> RemovedBenchmarks:
    for name in ("test_x.py", "test_other.py"):
        (folder / name).touch()
    config = SimpleNamespace(
        args=list(arguments),
        stash={hookspecs.LEFT_OUT: {"test_x.py::test_kept[dropped]"}},
        invocation_params=SimpleNamespace(dir=folder),
        rootpath=folder,
        getoption=lambda name: importmode,
    )
    session = SimpleNamespace(config=config, items=[Item(folder / "test_x.py")])
    return RemovedBenchmarks(session)  # type: ignore[arg-type] # a stand-in


@pytest.mark.parametrize(
    ("nodeid", "gone"),
    [
        ("test_x.py::test_kept[b]", False),  # a case of it may only not have been selected
        ("test_x.py::TestX::test_kept[b]", False),
        ("test_x.py::test_kept[dropped]", True),  # by a conftest
        ("test_x.py::test_lost[b]", True),
        ("test_x.py::TestX::test_lost", True),
        ("test_x.py::TestY::test_kept", True),
        ("test_other.py::test_lost", False),  # its file was not collected
        ("test_deleted.py::test_lost[b]", True),
        ("deleted/test_x.py::test_kept", True),
        ("test_x.py/test_x.py::test_kept", True),
        ("test_nameless", False),  # no file's
        ("a\0b.py::test_lost", False),
        (f"{'long' * 999}.py::test_lost", False),
    ],
)
def test_a_benchmark_is_gone_when_its_function_is(tmp_path: Path, nodeid: str, gone: bool) -> None:
    """In a file that was collected as a whole; and when its file is, whatever was collected."""
    assert removal(tmp_path)(nodeid) == gone


@pytest.mark.parametrize(("file", "gone"), [("test_x.py", False), ("test_deleted.py", True)])
def test_of_a_file_from_which_tests_were_named_nothing_is_known(
    tmp_path: Path, file: str, gone: bool
) -> None:
    """Nobody asked for the others; but no selection brings a deleted file back."""
    assert removal(tmp_path, "test_x.py::test_kept")(f"{file}::test_lost") == gone


@pytest.mark.parametrize(("importmode", "gone"), [("prepend", True), ("importlib", False)])
def test_of_a_collected_file_without_a_selected_test_all_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, importmode: str, gone: bool
) -> None:
    """It has been imported; with importlib also one that failed half way would seem so."""
    module = ModuleType("test_other")
    module.__file__ = str(tmp_path / "test_other.py")
    vars(module)["test_deselected"] = 1
    monkeypatch.setitem(sys.modules, "test_other", module)
    found = removal(tmp_path, importmode=importmode)
    assert found("test_other.py::test_lost") == gone
    assert not found("test_other.py::test_deselected[a]")
