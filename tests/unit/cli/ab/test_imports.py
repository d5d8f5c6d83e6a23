"""Both sides must not run the same code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpubench_plugin.cli.ab.launch import imports, require_own_code
from gpubench_plugin.cli.ab.sides import Side
from gpubench_plugin.compare.effective_limits import SideName
from gpubench_plugin.core.errors import UsageProblem


def side(name: SideName, tree: Path) -> Side:
    return Side(name=name, label=name, python="python", code={}, tree=tree, folder=tree)


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Side, Side]:
    made = []
    for name in ("base", "head"):
        tree = tmp_path.resolve() / name
        (tree / "src/mylib").mkdir(parents=True)
        (tree / "src/mylib/__init__.py").touch()
        made.append(side(name, tree))
    return made[0], made[1]


def test_only_own_code_and_installed_packages_are_fine(
    sides: tuple[Side, Side], tmp_path: Path
) -> None:
    """Not code of the other tree or the working tree, nor an installed copy of an own package."""
    base, head = sides
    site = Path("/usr/lib/python3/site-packages")
    modules = {
        "mylib": base.tree / "src/mylib/__init__.py",
        "torch": site / "torch/__init__.py",
        "installed": head.tree / ".venv/lib/python3.11/site-packages/x.py",
        "json": Path("/usr/lib/python3/json/__init__.py"),
        "other": tmp_path.resolve() / "repo/other.py",
    }
    require_own_code(base, head, modules, None)
    require_own_code(base, base, {"mylib": modules["mylib"]}, base.tree)
    with pytest.raises(UsageProblem, match="both sides import other"):
        require_own_code(base, head, modules, tmp_path / "repo")
    with pytest.raises(UsageProblem, match=f"both sides import mylib from {head.tree}/src/mylib"):
        require_own_code(base, head, {"mylib.a": head.tree / "src/mylib/a.py"}, None)
    with pytest.raises(UsageProblem, match="--base-python"):
        require_own_code(base, head, {"mylib": site / "mylib/__init__.py"}, None)


def test_a_tree_inside_the_other_is_foreign_to_it(sides: tuple[Side, Side]) -> None:
    """An old version kept in a folder of the new one is told apart both ways."""
    _, head = sides
    old = head.tree / "old"
    inner = side("base", old)
    require_own_code(inner, head, {"a": old / "a.py"}, None)
    require_own_code(head, inner, {"a": head.tree / "a.py"}, None)
    with pytest.raises(UsageProblem):
        require_own_code(head, inner, {"a": old / "a.py"}, None)
    with pytest.raises(UsageProblem):
        require_own_code(inner, head, {"a": head.tree / "a.py"}, None)


def test_all_processes_of_a_launch_report(sides: tuple[Side, Side], tmp_path: Path) -> None:
    """The ranks of a gang write files of their own; relative files are seen from where it ran."""
    base, _ = sides
    (tmp_path / "report").mkdir()
    for number in (1, 2):
        told = {"modules": {f"m{number}": f"m{number}.py"}, "tests": {f"t{number}": ["t.py", 3]}}
        (tmp_path / f"report/{number}.json").write_text(json.dumps({**told, "rootdir": "."}))
    found = imports(tmp_path, base)
    assert found.modules == {"m1": base.tree / "m1.py", "m2": base.tree / "m2.py"}
    assert found.tests == {"t1": ("t.py", 3), "t2": ("t.py", 3)}
