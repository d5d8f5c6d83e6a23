"""Comma-separated values, one row per verdict, for spreadsheets and scripts."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Final

from gpubench_plugin.reports.formats.base import Format
from gpubench_plugin.reports.text import UNICODE, printable
from gpubench_plugin.reports.verdict_table import changed, worst_first

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.records import Comparison, Verdict
    from gpubench_plugin.reports.text import Glyphs

COLUMNS: Final = (
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


class Csv(Format):
    """Numbers stand as they are; a text that a spreadsheet would run as a formula is quoted."""

    def render(
        self,
        comparisons: Sequence[Comparison],
        *,
        only_changed: bool = False,
        width: int = 80,
        color: bool = False,
        glyphs: Glyphs = UNICODE,
    ) -> str:
        """The header and the rows, the worst of each comparison first."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for comparison in comparisons:
            shown = worst_first(comparison.verdicts)
            for verdict in changed(shown) if only_changed else shown:
                writer.writerow(map(_cell, _values(verdict, comparison)))
        return text.getvalue()


def _values(verdict: Verdict, comparison: Comparison) -> tuple[str | float | None, ...]:
    low, high = verdict.interval or (None, None)
    return (
        verdict.id,
        verdict.metric,
        verdict.unit,
        verdict.better,
        verdict.base,
        verdict.head,
        verdict.kind,
        verdict.effect,
        low,
        high,
        verdict.launches,
        verdict.smallest_visible_effect,
        verdict.method,
        verdict.limit,
        verdict.reason,
        comparison.base,
        comparison.head,
        " ".join(verdict.moved) if verdict.kind in {"regressed", "improved"} else "",
        verdict.pairs_needed,
        verdict.runs_needed,
    )


def _cell(value: str | float | None) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return repr(value) if isinstance(value, int) else repr(float(value))
    shown = printable(value)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown
