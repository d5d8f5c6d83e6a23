"""Preflight checks: what each side's gpubench supports, and where its code comes from.

The two sides must not run the same code.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gpubench_plugin.cli.ab.git import last_error_line
from gpubench_plugin.cli.ab.sides import Side
from gpubench_plugin.core.errors import UsageProblem

_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, kw_only=True)
class ImportReport:
    """Imports and test locations reported by the processes of a launch.

    `modules` holds each module's file, `tests` each test's file below the side's tree and its
    line, from 1. `rootdirs` are pytest's, whose commit a run records.
    """

    modules: Mapping[str, Path] = field(default_factory=dict)
    tests: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    rootdirs: frozenset[Path] = frozenset()


def imports(folder: Path, side: Side) -> ImportReport:
    """Read the import reports of a launch of `side` from `folder`."""
    modules: dict[str, Path] = {}
    tests: dict[str, tuple[str, int]] = {}
    rootdirs: set[Path] = set()
    for report in sorted(folder.glob("*.json")):
        report_data = json.loads(report.read_text(encoding="utf-8"))
        modules |= {name: _absolute(file, side) for name, file in report_data["modules"].items()}
        tests |= {node_id: (file, line) for node_id, (file, line) in report_data["tests"].items()}
        rootdirs |= {_absolute(report_data["rootdir"], side)} if "rootdir" in report_data else set()
    return ImportReport(modules=modules, tests=tests, rootdirs=frozenset(rootdirs))


def _absolute(file: str, side: Side) -> Path:
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
            raise UsageProblem(_wrong_import_message(side, package, file))


def _wrong_import_message(side: Side, package: str, file: Path) -> str:
    return (
        f"both sides import {package} from {file.parent}, so both would measure the same "
        f"code, while the {side.name}'s copy is in {side.tree}. Its Python finds an installed "
        "package first; give each side its own environment with --base-python and "
        "--head-python, or put the folder of the package first in PYTHONPATH"
    )


_TIMEOUT_S: Final = 120.0
"""Long enough for a first import from a cold network disk; not measured."""
_QUERY_SCRIPT: Final = """
import importlib.util, json, platform
def is_installed(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False
flags = []
if is_installed("gpubench_plugin.config"):
    from gpubench_plugin.config.options import FLAGS
    flags = list(FLAGS)
elif is_installed("gpubench_plugin.options"):  # a commit from before November 2026
    from gpubench_plugin.options import FLAGS
    flags = list(FLAGS)
print(json.dumps({
    "python": platform.python_version(),
    "pytest": is_installed("pytest"),
    "flags": flags,
    "freezes_rounds": is_installed("gpubench_plugin.config.rounds_file")
    or is_installed("gpubench_plugin.measure.frozen"),
}))
"""


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """A side's Python version, its gpubench's flags, and whether it can fix rounds.

    A side's gpubench may be older than the comparing one.
    """

    python: str
    flags: tuple[str, ...]
    can_fix_rounds: bool


def features(side: Side, environment: Mapping[str, str]) -> Capabilities:
    """Query the Python of `side`.

    Raises:
        UsageProblem: it does not respond, or has no pytest or no gpubench.
    """
    option = f"--{side.name}-python"
    try:
        completed = subprocess.run(
            [side.python, "-c", _QUERY_SCRIPT],
            cwd=side.folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
        facts = json.loads(completed.stdout)
    except ValueError as error:
        raise UsageProblem(f"{option}: {side.python} does not respond like Python") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageProblem(f"{option}: {side.python} does not respond: {error}") from error
    except subprocess.CalledProcessError as error:
        raise UsageProblem(f"{option}: {side.python} failed: {last_error_line(error)}") from error
    for package, is_installed in (("pytest", facts["pytest"]), ("pytest-gpubench", facts["flags"])):
        if not is_installed:
            raise UsageProblem(
                f"{option}: {side.python} has no {package}; install it there, or choose "
                "another Python"
            )
    return Capabilities(
        python=facts["python"],
        flags=tuple(facts["flags"]),
        can_fix_rounds=facts["freezes_rounds"],
    )
