"""Files into which this process's own output goes: they grow while it measures."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

STREAMS: Final = (1, 2)
"""Standard output and error. What goes through a pipe, to ``tee`` say, cannot be followed."""


def own_output(file: Path) -> bool:
    """Whether this process's standard output or error is redirected into `file`."""
    try:
        found = file.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and any(_is(found, stream) for stream in STREAMS)


def _is(found: os.stat_result, stream: int) -> bool:
    with suppress(OSError):  # a stream that is closed
        return os.path.samestat(found, os.fstat(stream))
    return False
