"""What a child process tells: facts, or the end of its output."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_TIMEOUT_S: Final = 120
"""Not measured on a GPU; importing torch from a cold disk is most of it."""
_LAST_LINES: Final = 15
_LAST_BYTES: Final = 16_384
"""Of the end of an output: pytest's short summary fits; not measured."""


class ChildError(Exception):
    """A child process failed or printed no facts; the message is the reason, in one line."""


def facts_of(command: Sequence[str], environ: Mapping[str, str] = os.environ) -> Any:
    """The JSON in the last line that `command` prints; what it started for that ends with it.

    Raises:
        ChildError: it cannot be run, failed, was not done after two minutes, or printed no JSON.
    """
    # Its warnings may be errors here, which it must not fail by.
    environ = {name: value for name, value in environ.items() if name != "PYTHONWARNINGS"}
    try:
        child = subprocess.run(
            command,
            env=environ,
            capture_output=True,
            text=True,
            check=True,
            timeout=_TIMEOUT_S,
        )
        return json.loads(child.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired as error:  # what it wrote is no reason
        raise ChildError(f"no answer within {_TIMEOUT_S} s") from error
    except (OSError, subprocess.SubprocessError, ValueError, LookupError) as error:
        reason = getattr(error, "stderr", None) or str(error)
        raise ChildError(reason.strip().rpartition("\n")[2]) from error


def last_lines(output: Path) -> tuple[str, ...]:
    """End of the output in a file, without empty lines."""
    with output.open("rb") as file:
        file.seek(max(0, output.stat().st_size - _LAST_BYTES))
        text = file.read().decode("utf-8", "backslashreplace")
    return tuple(line for line in text.splitlines() if line.strip())[-_LAST_LINES:]
