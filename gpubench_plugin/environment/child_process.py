"""Facts from a child process, which ends with whatever it imported or started for them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Final

_TIMEOUT_S: Final = 120
"""Not measured on a GPU; importing torch from a cold disk is most of it."""


class ChildError(Exception):
    """A child process failed or printed no facts; the message is the reason, in one line."""


def facts_of(command: Sequence[str], environ: Mapping[str, str] = os.environ) -> Any:
    """The JSON in the last line that `command` prints.

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
