"""Comparison format base class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpubench_plugin.catalog import Function
from gpubench_plugin.records import Comparison, Verdict
from gpubench_plugin.reports.text import UNICODE, Glyphs
from gpubench_plugin.reports.verdict_table import changed, worst_first


@dataclass(frozen=True, kw_only=True)
class Page:
    """What is printed: `only_changed` leaves out what is known to be unchanged.

    `width` is the columns of the terminal, for formats that look at it; so are `color` and
    `glyphs`.
    """

    only_changed: bool = False
    width: int = 80
    color: bool = False
    glyphs: Glyphs = UNICODE

    def verdicts(self, comparison: Comparison) -> list[Verdict]:
        """Those of the comparison that are shown, the worst first."""
        verdicts = worst_first(comparison.verdicts)
        return changed(verdicts) if self.only_changed else verdicts


class Format(Function[[Sequence[Comparison], Page], str]):
    """Comparisons, one per head and all with the same base, as text that ends with a line's end."""

    decorator = "gpubench_plugin.reports.formats.Format"


BASE = Format
