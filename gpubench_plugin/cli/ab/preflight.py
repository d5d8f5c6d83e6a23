"""From which files the launches imported their code: both sides must not run the same."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gpubench_plugin.cli.ab.sides import Side
from gpubench_plugin.errors import UsageProblem

_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What the processes of a launch reported.

    `modules` holds each module's file, `tests` each test's file below the side's tree and its
    line, from 1. `rootdirs` are pytest's, whose commit a run records.
    """

    modules: Mapping[str, Path] = field(default_factory=dict)
    tests: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    rootdirs: frozenset[Path] = frozenset()


def imported(folder: Path, side: Side) -> Imported:
    """What the processes of a launch of `side` have written into `folder`."""
    modules: dict[str, Path] = {}
    tests: dict[str, tuple[str, int]] = {}
    rootdirs: set[Path] = set()
    for report in sorted(folder.glob("*.json")):
        told = json.loads(report.read_text(encoding="utf-8"))
        modules |= {name: _absolute(file, side) for name, file in told["modules"].items()}
        tests |= {node_id: (file, line) for node_id, (file, line) in told["tests"].items()}
        rootdirs |= {_absolute(told["rootdir"], side)} if "rootdir" in told else set()
    return Imported(modules=modules, tests=tests, rootdirs=frozenset(rootdirs))


def _absolute(file: str, side: Side) -> Path:
    return Path(os.path.realpath(side.folder / file))


def require_own_code(
    side: Side, other: Side, modules: Mapping[str, Path], repository: Path | None
) -> None:
    """Refuse a launch of `side` that took code of its packages from elsewhere.

    That is code from the tree of `other`, or from the working tree of the `repository` that a side
    was checked out of, where it is given; and a package that `side` has at the top of its tree and
    that was imported from another place.

    Raises:
        UsageProblem: it did; the message names the package and the place.
    """
    tree = side.tree.resolve()
    foreign = [t.resolve() for t in (other.tree, repository) if t is not None]
    # A tree may lie inside the other: then what is in the inner one is not foreign to it.
    foreign = [t for t in foreign if t != tree]
    own = set(_top_level_packages(side.import_roots()))
    for name, file in modules.items():
        if file.is_relative_to(tree) and not _inside_nested(file, tree, foreign):
            continue
        top = name.partition(".")[0]
        in_environment = not _INSTALLED.isdisjoint(file.parts)
        if (top in own) or (not in_environment and any(file.is_relative_to(t) for t in foreign)):
            raise UsageProblem(_message(side, top, file))


def _inside_nested(file: Path, tree: Path, foreign: Iterable[Path]) -> bool:
    return any(t.is_relative_to(tree) and file.is_relative_to(t) for t in foreign)


def _top_level_packages(roots: Iterable[Path]) -> Iterable[str]:
    for root in roots:
        yield from (package.parent.name for package in root.glob("*/__init__.py"))


def _message(side: Side, package: str, file: Path) -> str:
    return (
        f"both sides import {package} from {file.parent}, so they would measure the same code: "
        f"the {side.name}'s is in {side.tree}. Its Python finds the installed package first; give "
        f"an environment for each side with --base-python and --head-python, or put the folder "
        f"of the package first in PYTHONPATH"
    )
