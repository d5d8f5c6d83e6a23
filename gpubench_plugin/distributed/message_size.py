"""Sizes of messages as parameters write them: ``64KiB``."""

from __future__ import annotations

import re
from typing import Final

from gpubench_plugin.errors import UsageProblem

_UNITS: Final = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE: Final = re.compile(rf"([1-9][0-9]*)({'|'.join(_UNITS)})")


def parse(text: str) -> int:
    """The bytes that `text` says.

    Raises:
        UsageProblem: it is no whole number of B, KiB, MiB or GiB.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        allowed = f"a whole number of {', '.join(_UNITS)}, such as 64KiB"
        raise UsageProblem(f"message size {text!r}; allowed: {allowed}")
    return int(match[1]) * _UNITS[match[2]]


def shown(size_bytes: float) -> str:
    """A size in the largest fitting unit, rounded: ``1.5 GiB``."""
    fitting = [unit for unit, scale in _UNITS.items() if size_bytes >= scale] or ["B"]
    return f"{size_bytes / _UNITS[fitting[-1]]:.4g} {fitting[-1]}"
