"""What must be asked of the registry before anything is measured, by a process of its own.

On a CPU a benchmark's peak of memory is that of this process, so the libraries that speak with a
database are not loaded in it: they would be measured as well.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

_PATIENCE_S: Final = 30.0
"""A server that is down is found so within 10 s; starting Python and its libraries takes 1 s."""


def slip(name: str, *, url: str, results_dir: Path) -> str:
    """The message that `name` is likely a slip for another baseline's (:meth:`.Baselines.slip`).

    It is empty where it is none, and where nobody knows.
    """
    code = f"from {__name__} import answer; answer()"
    question = {"name": name, "url": url, "results_dir": str(results_dir)}
    try:
        process = subprocess.run(
            [sys.executable, "-P", "-c", code],
            input=json.dumps(question),  # not as an argument: the URL may hold a password
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            timeout=_PATIENCE_S,
            check=True,
        )
        return str(json.loads(process.stdout)["slip"])
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
        return ""  # it is asked again, when all is measured


def answer() -> None:
    """Answer the question on the standard input, on the standard output."""
    from gpubench_plugin.compare.baselines.store import Baselines
    from gpubench_plugin.results.registry.reachable import reachable

    question = json.load(sys.stdin)
    results_dir = Path(question["results_dir"])
    with reachable(question["url"], results_dir) as reached:
        baselines = Baselines(results_dir, reached.registry, unanswered=reached.note)
        message = baselines.slip(question["name"])
    json.dump({"slip": message}, sys.stdout)
