"""Where configurations are looked up by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpubench_plugin.errors import UsageProblem, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence


def directories(given: Sequence[Path], rootdir: Path) -> tuple[Path, ...]:
    """The folders searched, first match first.

    They are the directories `given` as ``--config``, ``<rootdir>/configs``, and the
    configurations this project ships.
    """
    return (*(path for path in given if path.is_dir()), rootdir / "configs", shipped())


def shipped() -> Path:
    """The folder of our own configurations: in the installed package, else in the checkout."""
    package = Path(__file__).parent.parent
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


def find(name: str, among: Sequence[Path]) -> Path:
    """The file ``<name>.yaml`` in the first of the directories `among` that has it.

    Raises:
        UsageProblem: none has it; the message names the directories and what they hold.
    """
    found = [{path.stem: path for path in folder.glob("*.yaml")} for folder in among]
    for files in found:
        if name in files:
            return files[name]
    there = sorted(set().union(*found))
    searched = ", ".join(dict.fromkeys(map(str, among)))
    held = f"there: {', '.join(there)}" if there else "no configuration is there"
    message = f"config {name!r}: no file {name}.yaml{nearest(name, there)} in {searched}; {held}"
    raise UsageProblem(message)


def overlay(path: Path) -> Path:
    """The file `path` given as ``--config``.

    Raises:
        UsageProblem: there is no such file; the message names the one like it beside it.
    """
    if path.is_file():
        return path
    hint = nearest(path.name, [file.name for file in path.parent.glob("*.y*ml")])
    message = f"--config={path}: no such file{hint}; allowed: a YAML file, or a directory of them"
    raise UsageProblem(message)
