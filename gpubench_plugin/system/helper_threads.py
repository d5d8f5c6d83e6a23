"""Helper threads of the plugin, which hang reports leave out."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any, Final

_RUN: Final = re.compile(r'^  File ".*\bhelper_threads\.py", line \d+ in run$', re.MULTILINE)


class HelperThread(threading.Thread):
    """A daemon thread whose stack has a frame of this module."""

    def __init__(self, name: str, target: Callable[..., object], *arguments: Any):
        super().__init__(name=name, target=target, args=arguments, daemon=True)

    def run(self) -> None:
        """Run the target, from a frame that :func:`without_helpers` recognizes."""
        super().run()


def without_helpers(stacks: str) -> str:
    """Remove the helper threads from faulthandler's `stacks`."""
    return "\n\n".join(s for s in stacks.strip().split("\n\n") if not _RUN.search(s))
