"""Comparisons as a table for a terminal, Markdown for GitHub, JSON and CSV for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from gpubench_plugin.core.format import Cell, counted, csv_text
from gpubench_plugin.core.verdicts import Comparison, Verdict
from gpubench_plugin.reports import github
from gpubench_plugin.reports.formats.base import Format, Page
from gpubench_plugin.reports.markup import painted, plain
from gpubench_plugin.reports.text import printable
from gpubench_plugin.reports.verdict_table import verdict_lines


@Format
def table(comparisons: Sequence[Comparison], page: Page) -> str:
    """One table with a column per head, the worst row first."""
    render_line = painted if page.color else plain
    lines = verdict_lines(comparisons, page.width, only_changed=page.only_changed)
    return "".join(f"{render_line(line)}\n" for line in lines)


_MOST_HEADS: Final = 40  # on a page of GitHub: of more, each would be little but its headline


@Format
def markdown(comparisons: Sequence[Comparison], page: Page) -> str:
    """A comment for a pull request; of several heads, a part for each."""
    shown = comparisons[:_MOST_HEADS]
    limit = github.LIMIT // max(len(shown), 1)
    parts = [github.page(c, only_changed=page.only_changed, limit=limit) for c in shown]
    if hidden_count := len(comparisons) - len(shown):
        parts.append(f"{counted(hidden_count, 'more head')} left out\n")
    return "\n".join(parts) or "\n"


@Format
def json(comparisons: Sequence[Comparison], page: Page) -> str:
    """JSON with the schema printed by ``gpubench schema verdicts``."""
    from gpubench_plugin.results import verdicts

    return verdicts.to_text(
        [replace(each, verdicts=tuple(page.verdicts(each))) for each in comparisons]
    )


_COLUMNS: Final = (
    *("id", "metric", "unit", "better", "base", "head", "verdict", "effect"),
    *("interval_low", "interval_high", "launches", "smallest_visible_effect", "method", "limit"),
    *("reason", "base_label", "head_label", "moved", "pairs_needed", "runs_needed", "doubts"),
)
"""Columns of CSV. Effects are fractions, positive if the head is worse; a step time's row has the
values of the metric that decided, and `moved` lists all that did."""


@Format
def csv(comparisons: Sequence[Comparison], page: Page) -> str:
    """CSV; texts that a spreadsheet would evaluate as formulas are escaped."""
    rows = (_row(verdict, each) for each in comparisons for verdict in page.verdicts(each))
    return csv_text([_COLUMNS, *rows])


def _row(verdict: Verdict, comparison: Comparison) -> Iterator[Cell]:
    """Cell of each column: an entry below, or else the verdict's field of that name."""
    low, high = verdict.interval or (None, None)
    values: Mapping[str, Cell] = {
        "verdict": verdict.kind,
        "interval_low": low,
        "interval_high": high,
        "base_label": comparison.base,
        "head_label": comparison.head,
        "moved": " ".join(verdict.changed_metrics)
        if verdict.kind in {"regressed", "improved"}
        else "",
    }
    for column in _COLUMNS:
        cell = values[column] if column in values else getattr(verdict, column)
        yield printable(cell) if isinstance(cell, str) else cell
