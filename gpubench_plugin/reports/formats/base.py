"""Base of comparison formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpubench_plugin.core.catalog import Function
from gpubench_plugin.core.verdicts import Comparison, Verdict
from gpubench_plugin.reports.verdicts import changed, worst_first


@dataclass(frozen=True, kw_only=True)
class Page:
    """Settings of the output; `width` in columns, `color` is for terminals."""

    only_changed: bool = False
    width: int = 80
    color: bool = False

    def verdicts(self, comparison: Comparison) -> list[Verdict]:
        """Verdicts of the comparison to print, worst first."""
        verdicts = worst_first(comparison.verdicts)
        return changed(verdicts) if self.only_changed else verdicts


class Format(Function[[Sequence[Comparison], Page], str]):
    """Renders comparisons, one per head with the same base, as text with a final newline."""

    decorator = "gpubench_plugin.reports.formats.Format"


BASE = Format
