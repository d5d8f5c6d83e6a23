"""Checks on each side: what its gpubench supports, and where its launches imported their code from.

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
    # A tree may lie inside the other: then what is in the inner one is not foreign to it.
    foreign = {t.resolve() for t in (other.tree, repository) if t is not None} - {tree}
    own = {p.parent.name for root in side.import_roots() for p in root.glob("*/__init__.py")}
    for name, file in modules.items():
        nested = any(t.is_relative_to(tree) and file.is_relative_to(t) for t in foreign)
        if file.is_relative_to(tree) and not nested:
            continue
        top = name.partition(".")[0]
        in_environment = not _INSTALLED.isdisjoint(file.parts)
        if (top in own) or (not in_environment and any(file.is_relative_to(t) for t in foreign)):
            raise UsageProblem(_message(side, top, file))


def _message(side: Side, package: str, file: Path) -> str:
    return (
        f"both sides import {package} from {file.parent}, so they would measure the same code: "
        f"the {side.name}'s is in {side.tree}. Its Python finds the installed package first; give "
        f"an environment for each side with --base-python and --head-python, or put the folder "
        f"of the package first in PYTHONPATH"
    )


_PATIENCE_S: Final = 120.0
_ASK: Final = """
import importlib.util, json, platform
def found(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False
flags = []
if found("gpubench_plugin.config"):
    from gpubench_plugin.config.options import FLAGS
    flags = list(FLAGS)
elif found("gpubench_plugin.options"):  # a commit from before November 2026
    from gpubench_plugin.options import FLAGS
    flags = list(FLAGS)
print(json.dumps({
    "python": platform.python_version(),
    "pytest": found("pytest"),
    "flags": flags,
    "freezes_rounds": found("gpubench_plugin.config.rounds_file")
    or found("gpubench_plugin.measure.frozen"),
}))
"""


@dataclass(frozen=True, kw_only=True)
class Offers:
    """The version of a side's Python, its gpubench's flags, and whether rounds can be fixed.

    A side's gpubench may be older than the one that compares.
    """

    python: str
    flags: tuple[str, ...]
    freezes_rounds: bool


def offers(side: Side, environment: Mapping[str, str]) -> Offers:
    """Ask the Python of `side`.

    Raises:
        UsageProblem: it does not answer, or has no pytest or no gpubench.
    """
    option = f"--{side.name}-python"
    try:
        done = subprocess.run(
            [side.python, "-c", _ASK],
            cwd=side.folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=True,
        )
        facts = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise UsageProblem(f"{option}: {side.python} does not answer: {error}") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
        raise UsageProblem(f"{option}: {side.python} does not work: {said[-1]}") from error
    for package, there in (("pytest", facts["pytest"]), ("pytest-gpubench", facts["flags"])):
        if not there:
            raise UsageProblem(
                f"{option}: {side.python} has no {package}; install it there, or name another "
                "Python"
            )
    return Offers(
        python=facts["python"],
        flags=tuple(facts["flags"]),
        freezes_rounds=facts["freezes_rounds"],
    )
