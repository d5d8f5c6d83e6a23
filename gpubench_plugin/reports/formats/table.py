"""A table for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.reports.formats.base import Format
from gpubench_plugin.reports.terminal import painted, plain
from gpubench_plugin.reports.text import UNICODE
from gpubench_plugin.reports.verdict_table import verdict_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.records import Comparison
    from gpubench_plugin.reports.text import Glyphs


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
        written = painted if color else plain
        parts = (
            "".join(
                f"{written(line)}\n"
                for line in verdict_lines(comparison, width, glyphs, only_changed=only_changed)
            )
            for comparison in comparisons
        )
        return "\n".join(parts)
