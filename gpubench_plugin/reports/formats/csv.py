"""Comma-separated values, one row per verdict, for spreadsheets and scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gpubench_plugin.environment import Cell, csv_text
from gpubench_plugin.records import Comparison, Verdict
from gpubench_plugin.reports.formats.base import Format, Page
from gpubench_plugin.reports.text import printable

_COLUMNS: Final = (
    "id",
    "metric",
    "unit",
    "better",
    "base",
    "head",
    "verdict",
    "effect",
    "interval_low",
    "interval_high",
    "launches",
    "smallest_visible_effect",
    "method",
    "limit",
    "reason",
    "base_label",
    "head_label",
    "moved",
    "pairs_needed",
    "runs_needed",
)
"""Effects are fractions, positive where the head is worse; values are in the unit beside them.

The row of a step time has the numbers of the metric that decided; `moved` are all that did."""


@Format
def csv(comparisons: Sequence[Comparison], page: Page) -> str:
    """Numbers stand as they are; a text that a spreadsheet would run as a formula is quoted."""
    rows = (_row(verdict, one) for one in comparisons for verdict in page.verdicts(one))
    return csv_text([_COLUMNS, *rows])


def _row(verdict: Verdict, comparison: Comparison) -> Iterator[Cell]:
    """The cell of each column; one without an entry here is the field of its name."""
    low, high = verdict.interval or (None, None)
    values: Mapping[str, Cell] = {
        "verdict": verdict.kind,
        "interval_low": low,
        "interval_high": high,
        "base_label": comparison.base,
        "head_label": comparison.head,
        "moved": " ".join(verdict.moved) if verdict.kind in {"regressed", "improved"} else "",
    }
    for column in _COLUMNS:
        cell = values[column] if column in values else getattr(verdict, column)
        yield printable(cell) if isinstance(cell, str) else cell
