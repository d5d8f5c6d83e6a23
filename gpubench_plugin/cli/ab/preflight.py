"""Checks of a side: its Python before the first launch, the origin of its code after each one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gpubench_plugin.cli.ab.sides import Side
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.environment.child_process import ChildError, facts_of

_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, kw_only=True)
class ImportReport:
    """Imports and test locations reported by the processes of a launch.

    `modules` holds each module's file, `tests` each test's file below the side's tree and its
    line, from 1. `rootdirs` are pytest's, whose commit a run records.
    """

    modules: dict[str, Path] = field(default_factory=dict)
    tests: dict[str, tuple[str, int]] = field(default_factory=dict)
    rootdirs: set[Path] = field(default_factory=set)


def imports(folder: Path, side: Side) -> ImportReport:
    """Read what :mod:`.launch_plugin` reported of the launch of `side` in `folder`."""
    report = ImportReport()
    for file in sorted((folder / "report").glob("*.json")):
        data = json.loads(file.read_text(encoding="utf-8"))
        report.modules.update((name, _real(path, side)) for name, path in data["modules"].items())
        report.tests.update(
            (node_id, (path, line)) for node_id, (path, line) in data["tests"].items()
        )
        report.rootdirs.add(_real(data["rootdir"], side))
    return report


def _real(file: str, side: Side) -> Path:
    return Path(os.path.realpath(side.folder / file))


def require_own_code(
    side: Side, other: Side, modules: Mapping[str, Path], repository: Path | None
) -> None:
    """Refuse a launch of `side` that imported its packages from elsewhere.

    That is code from the tree of `other`, or from the working tree of the `repository`; or a
    package at the top of `side`'s tree that was imported from another place.

    Raises:
        UsageProblem: the message names the package and the place.
    """
    tree = side.tree.resolve()
    # One tree may lie inside the other; files of the inner one are its own.
    other_trees = {t.resolve() for t in (other.tree, repository) if t is not None} - {tree}
    own_packages = {
        p.parent.name for root in side.import_roots() for p in root.glob("*/__init__.py")
    }
    for name, file in modules.items():
        nested = any(t.is_relative_to(tree) and file.is_relative_to(t) for t in other_trees)
        if file.is_relative_to(tree) and not nested:
            continue
        package = name.partition(".")[0]
        in_environment = not _INSTALLED.isdisjoint(file.parts)
        if (package in own_packages) or (
            not in_environment and any(file.is_relative_to(t) for t in other_trees)
        ):
            raise UsageProblem(
                f"both sides import {package} from {file.parent}, so both would measure the same "
                f"code, while the {side.name}'s copy is in {side.tree}. Its Python finds an "
                "installed package first; give each side its own environment with --base-python "
                "and --head-python, or put the folder of the package first in PYTHONPATH"
            )


_QUERY: Final = """
import json, platform
from importlib.util import find_spec
modules = {"pytest": "pytest", "pytest-gpubench": "gpubench_plugin"}
missing = [package for package, module in modules.items() if find_spec(module) is None]
print(json.dumps({"python": platform.python_version(), "missing": missing}))
"""


def python_version(side: Side, environ: Mapping[str, str]) -> str:
    """Version of the Python of `side`.

    Raises:
        UsageProblem: it does not respond, or has no pytest or no gpubench.
    """
    python, option = side.python, f"--{side.name}-python"
    try:
        facts = facts_of([python, "-c", _QUERY], environ, cwd=side.folder)
        version, missing = str(facts["python"]), list(facts["missing"])
    except (ChildError, LookupError, TypeError) as error:
        raise UsageProblem(f"{option}: {python} does not answer: {error}") from error
    if missing:
        raise UsageProblem(
            f"{option}: {python} has no {missing[0]}; install it there, or choose another Python"
        )
    return version
