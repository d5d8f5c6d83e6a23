"""Pieces of Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable


def table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table; cells are Markdown, but neither ``|`` nor ``<`` has a meaning in them."""
    lines = (header, ("---",) * len(header), *rows)
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    """Within backticks ``<`` is no markup and a backslash would show."""
    outside = re.split(r"(`[^`]*`)", text.replace("|", r"\|"))
    outside[::2] = (part.replace("<", r"\<") for part in outside[::2])
    return "".join(outside)


def prose(thing: object) -> str:
    """The docstring of `thing`, its bare addresses as links."""
    return re.sub(r"https?://[^\s;,)]*[\w/]", r"<\g<0>>", inspect.getdoc(thing) or "")
