"""Comparisons as a whole: a table for a terminal, Markdown for GitHub, JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpubench_plugin.records import Comparison
from gpubench_plugin.reports import github
from gpubench_plugin.reports.formats.base import Format, Page
from gpubench_plugin.reports.markup import painted, plain
from gpubench_plugin.reports.verdict_table import headline, verdict_lines


@Format
def table(comparisons: Sequence[Comparison], page: Page) -> str:
    """Sorted by effect, the worst first, each comparison under its title."""
    written = painted if page.color else plain
    parts = (
        "".join(
            f"{written(line)}\n"
            for line in verdict_lines(
                comparison, page.width, page.glyphs, only_changed=page.only_changed
            )
        )
        for comparison in comparisons
    )
    return "\n".join(parts)


@Format
def markdown(comparisons: Sequence[Comparison], page: Page) -> str:
    """A headline, a table and the folded differences of the environment for each comparison."""
    lines: list[str] = []
    for comparison in comparisons:
        lines += [f"**{github.escaped(headline(comparison.verdicts))}**", ""]
        lines += [github.head(comparison), "", *github.notes(comparison)]
        rows = github.table(page.verdicts(comparison))
        lines += [*rows, ""] if rows else []
        lines += github.environment(comparison.environment_differences)
    return "\n".join(lines).rstrip("\n") + "\n"


@Format
def json(comparisons: Sequence[Comparison], page: Page) -> str:
    """Strict JSON: ``gpubench schema verdicts`` prints its schema."""
    from gpubench_plugin.results import verdicts

    return verdicts.to_text(
        [
            replace(comparison, verdicts=tuple(page.verdicts(comparison)))
            for comparison in comparisons
        ]
    )
