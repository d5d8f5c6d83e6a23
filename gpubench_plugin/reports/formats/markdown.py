"""Markdown, for a comment or a page of GitHub."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.reports import markdown
from gpubench_plugin.reports.formats.base import Format
from gpubench_plugin.reports.glyphs import UNICODE
from gpubench_plugin.reports.headline import headline
from gpubench_plugin.reports.verdict_cells import changed, worst_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpubench_plugin.reports.glyphs import Glyphs
    from gpubench_plugin.verdicts import Comparison


class Markdown(Format):
    """A headline, a table and the folded differences of the environment for each comparison."""

    def render(
        self,
        comparisons: Sequence[Comparison],
        *,
        only_changed: bool = False,
        width: int = 80,
        color: bool = False,
        glyphs: Glyphs = UNICODE,
    ) -> str:
        """All of it; nothing is cut to `width`."""
        lines = [line for c in comparisons for line in _lines(c, only_changed=only_changed)]
        return "\n".join(lines).rstrip("\n") + "\n"


def _lines(comparison: Comparison, *, only_changed: bool) -> Iterator[str]:
    verdicts = worst_first(comparison.verdicts)
    yield f"**{markdown.text(headline(verdicts))}**"
    yield ""
    yield markdown.head(comparison)
    yield ""
    yield from markdown.notes(comparison)
    table = markdown.table(changed(verdicts) if only_changed else verdicts)
    yield from [*table, ""] if table else []
    yield from markdown.environment(comparison.environment_differences)
