"""A rank must not outlive its controller: it dies with it, in whatever it is doing."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
"""prctl(2), <linux/prctl.h>."""


def die_with_parent(death: signal.Signals = signal.SIGKILL, *, parent: int | None = None) -> None:
    """Have the kernel send `death` to this process when its parent ends (Linux; else nothing).

    `parent` is the process that is expected to be the parent; when it has ended already, this
    process gets the signal now.
    """
    if sys.platform != "linux":
        return
    expected = os.getppid() if parent is None else parent
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, death, 0, 0, 0)
    if os.getppid() != expected:
        os.kill(os.getpid(), death)
