"""Markdown, for a comment or a page of GitHub."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.reports import github
from gpubench_plugin.reports.formats.base import Format
from gpubench_plugin.reports.text import UNICODE
from gpubench_plugin.reports.verdict_table import changed, headline, worst_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpubench_plugin.records import Comparison
    from gpubench_plugin.reports.text import Glyphs


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
    yield f"**{github.escaped(headline(verdicts))}**"
    yield ""
    yield github.head(comparison)
    yield ""
    yield from github.notes(comparison)
    table = github.table(changed(verdicts) if only_changed else verdicts)
    yield from [*table, ""] if table else []
    yield from github.environment(comparison.environment_differences)
