"""What ``--repro`` has kept of a failed check, as arguments that replay it.

The folder may be moved, also to another machine with the project's code: paths within it are
written relative to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpubench_plugin.core.errors import BrokenFile
from gpubench_plugin.system import stored

if TYPE_CHECKING:
    from pathlib import Path

FACTS: Final = "repro.json"
FOLDER: Final = "{folder}"
"""Stands for the folder in its own arguments."""
FORMAT: Final = stored.Format(kind="reproduction of a failed check", newest=1)
_ALLOWED: Final = ("--gpubench-", "-k")
"""Beginnings of options: a folder of others loads no plugin and moves no rootdir."""


def replay_arguments(folder: Path) -> list[str]:
    """Arguments of pytest that repeat the benchmark which `folder` was written for.

    To be run in the working directory that its facts name, relative to pytest's rootdir.

    Raises:
        UsageProblem: there is no such folder.
        BrokenFile: it has other files than gpubench writes.
    """
    path = folder.absolute() / FACTS
    arguments = FORMAT.load(path).get("arguments")
    if not isinstance(arguments, list) or not all(
        isinstance(a, str) and (a[:1] != "-" or a.startswith(_ALLOWED)) for a in arguments
    ):
        raise BrokenFile(f"{path}: arguments: not a list of a test and options of gpubench")
    return [argument.replace(FOLDER, str(path.parent)) for argument in arguments]
