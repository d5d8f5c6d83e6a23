"""What ``--repro`` has kept of a failed check, as arguments that replay it.

The folder may be moved, also to another machine with the project's code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpubench_plugin.core.errors import BrokenFile
from gpubench_plugin.system import json_files, stored

if TYPE_CHECKING:
    from pathlib import Path

FACTS: Final = "repro.json"
FORMAT: Final = stored.Format(kind="reproduction of a failed check", newest=1)


def replay_arguments(folder: Path) -> list[str]:
    """Arguments of pytest that repeat the benchmark which `folder` was written for.

    To be run in the working directory that its facts name, relative to pytest's rootdir. They are
    a test and options of gpubench, whatever the file says.

    Raises:
        UsageProblem: there is no such folder.
        BrokenFile: its facts are not those that gpubench writes.
    """
    path = folder.absolute() / FACTS
    facts = FORMAT.load(path)
    try:
        test, options = facts["test"].lstrip("-"), [*facts["options"].items()]
        if not facts["no_inputs"]:
            values = "data.source=saved", f"data.path={path.with_name('inputs.pt')}"
            options += [("set", value) for value in values]
        if "measure" in facts["options"]:  # then the test is in no file
            test = f"-k{test.partition('::')[2]}"
    except json_files.MALFORMED as error:
        raise BrokenFile(f"{path}: {type(error).__name__}: {error}") from error
    options.append(("config", path.with_name("configuration.yaml")))
    return [test, *(f"--gpubench-{name}={value}" for name, value in options)]
