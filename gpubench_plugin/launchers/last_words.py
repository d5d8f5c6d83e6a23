"""A thread that ends the process must not itself end unheard: then nothing would end it."""

from __future__ import annotations

import os
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_STDERR: Final = os.dup(2)
"""Shown even while pytest captures what tests write: this module is loaded before any test runs."""


def or_die(function: Callable[[], object]) -> None:
    """Call `function`; an error in it ends the process, with a traceback and the exit code 3."""
    try:
        function()
    except BaseException:  # whatever it is
        with suppress(OSError):
            text = f"gpubench: this process cannot go on:\n{traceback.format_exc()}"
            os.write(_STDERR, text.encode(errors="replace"))
        os._exit(3)
