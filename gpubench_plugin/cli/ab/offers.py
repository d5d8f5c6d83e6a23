"""What the gpubench of a side offers: it may be older than the one that compares."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpubench_plugin.cli.ab.sides import Side
from gpubench_plugin.errors import UsageProblem

_PATIENCE_S: Final = 120.0
_ASK: Final = """
import importlib.util, json, platform
def found(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False
flags = []
if found("gpubench_plugin.config.options"):
    from gpubench_plugin.config.options import FLAGS
    flags = list(FLAGS)
print(json.dumps({
    "python": platform.python_version(),
    "pytest": found("pytest"),
    "flags": flags,
    "freezes_rounds": found("gpubench_plugin.config.rounds_file"),
}))
"""


@dataclass(frozen=True, kw_only=True)
class Offers:
    """The version of a side's Python, its gpubench's flags, and whether rounds can be fixed."""

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
