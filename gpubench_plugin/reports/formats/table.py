"""A table for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpubench_plugin.reports.formats.base import Format
from gpubench_plugin.reports.text import UNICODE
from gpubench_plugin.reports.verdict_table import verdict_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpubench_plugin.records import Comparison
    from gpubench_plugin.reports.terminal import Line, Span
    from gpubench_plugin.reports.text import Glyphs

_CODES: Final[Mapping[str, int]] = {"bold": 1, "red": 31, "green": 32, "yellow": 33}
"""Of ECMA-48's SGR, by the names that pytest's writer has for them."""


class Table(Format):
    """Sorted by effect, the worst first, each comparison under its title."""

    def render(
        self,
        comparisons: Sequence[Comparison],
        *,
        only_changed: bool = False,
        width: int = 80,
        color: bool = False,
        glyphs: Glyphs = UNICODE,
    ) -> str:
        """Lines of at most `width` columns."""
        parts = (
            "".join(
                f"{_text(line, color=color)}\n"
                for line in verdict_lines(comparison, width, glyphs, only_changed=only_changed)
            )
            for comparison in comparisons
        )
        return "\n".join(parts)


def _text(line: Line, *, color: bool) -> str:
    return "".join(_painted(span) if color else span[0] for span in line)


def _painted(span: Span) -> str:
    text, markup = span
    codes = ";".join(str(_CODES[name]) for name, on in markup.items() if on)
    return f"\x1b[{codes}m{text}\x1b[0m" if codes else text
