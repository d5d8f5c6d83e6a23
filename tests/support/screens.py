"""Screens kept as plain text files and compared exactly: what a terminal shows at a width."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

from gpubench_plugin.reports.text import encodable

SCREENS = Path(__file__).parents[1] / "unit" / "reports" / "screens"
ACCEPT = "GPUBENCH_ACCEPT_SCREENS"
"""Environment variable with which screens are written anew: look at their diff then."""


def assert_screen(name: str, text: str) -> None:
    """Compare `text` with the stored screen `name`, and the width of its lines with the name's end.

    A name ends in the width, as in ``ab-80``; an overlong line fails, stored or not.
    """
    width = int(name.rpartition("-")[2])
    overlong = [line for line in text.splitlines() if len(line) > width]
    assert not overlong, f"wider than {width}: {overlong}"
    file = SCREENS / f"{name}.txt"
    if os.environ.get(ACCEPT):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"{file.name} differs; {ACCEPT}=1 rewrites it"


def in_ascii(text: str) -> str:
    """The `text` as an ASCII terminal gets it."""
    return encodable(text, SimpleNamespace(encoding="ascii"))
