"""Comma-separated values, one row per verdict, for spreadsheets and scripts."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from csv import DictWriter
from typing import Final

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

_FORMULA: Final = ("=", "+", "-", "@")


@Format
def csv(comparisons: Sequence[Comparison], page: Page) -> str:
    """Numbers stand as they are; a text that a spreadsheet would run as a formula is quoted."""
    text = io.StringIO()
    writer = DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for comparison in comparisons:
        writer.writerows(_row(verdict, comparison) for verdict in page.verdicts(comparison))
    return text.getvalue()


def _row(verdict: Verdict, comparison: Comparison) -> Mapping[str, str]:
    """The cell of each column; one without an entry here is the field of its name."""
    low, high = verdict.interval or (None, None)
    values: dict[str, str | float | None] = {
        "verdict": verdict.kind,
        "interval_low": low,
        "interval_high": high,
        "base_label": comparison.base,
        "head_label": comparison.head,
        "moved": " ".join(verdict.moved) if verdict.kind in {"regressed", "improved"} else "",
    }
    return {
        column: _cell(values[column] if column in values else getattr(verdict, column))
        for column in _COLUMNS
    }


def _cell(value: str | float | None) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return repr(value) if isinstance(value, int) else repr(float(value))
    shown = printable(value)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown
