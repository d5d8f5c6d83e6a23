"""Rows of a table of comparisons: one per benchmark and metric, one cell per head."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpubench_plugin.core.records import Comparison, Verdict, VerdictPart
from gpubench_plugin.reports.verdicts import severity

Key = tuple[str, str]
"""Node id and metric."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One metric of a benchmark: its value in the base, and the verdict on each head.

    A cell is None where that head was not compared; a verdict without a metric is about the whole
    benchmark, such as ``removed``.
    """

    id: str
    metric: str
    cells: tuple[VerdictPart | None, ...]

    @property
    def base(self) -> VerdictPart | None:
        """A cell that has the base's value, the same for all heads."""
        return next((cell for cell in self.cells if cell and cell.base is not None), None)

    @property
    def is_unchanged(self) -> bool:
        """Whether no head changed."""
        return all(cell is None or cell.kind == "unchanged" for cell in self.cells)


def rows_of(comparisons: Sequence[Comparison]) -> list[Row]:
    """Rows of all verdicts that have a value, the worst first.

    A step time is judged by several metrics, of which one decides. The row of each metric that
    decides for a head also shows what the others say of it; one in which nothing changed is left
    out if another one of the benchmark has changes.
    """
    cells = [_cells(comparison.verdicts) for comparison in comparisons]
    keys = dict.fromkeys(
        (verdict.id, verdict.metric)
        for comparison in comparisons
        for verdict in comparison.verdicts
        if has_value(verdict)
    )
    rows = [
        Row(id=key[0], metric=key[1], cells=tuple(_cell(of_head, key) for of_head in cells))
        for key in keys
    ]
    step_times = {
        (verdict.id, part.metric)
        for comparison in comparisons
        for verdict in comparison.verdicts
        for part in verdict.parts
    }
    changed_ids = {
        row.id for row in rows if (row.id, row.metric) in step_times and not row.is_unchanged
    }
    visible = (
        row
        for row in rows
        if not (row.is_unchanged and row.id in changed_ids and (row.id, row.metric) in step_times)
    )
    return sorted(visible, key=_severity)


def has_value(verdict: VerdictPart) -> bool:
    """Whether there is a number to show."""
    return verdict.base is not None or verdict.head is not None


def _cells(verdicts: Iterable[Verdict]) -> Mapping[Key, VerdictPart]:
    """Verdicts and their parts by benchmark and metric; those on a whole benchmark without one."""
    cells: dict[Key, VerdictPart] = {}
    for verdict in verdicts:
        cells |= {(verdict.id, part.metric): part for part in verdict.parts}
        cells[verdict.id, verdict.metric] = verdict
    return cells


def _cell(cells: Mapping[Key, VerdictPart], key: Key) -> VerdictPart | None:
    return cells.get(key) or cells.get((key[0], ""))


def _severity(row: Row) -> tuple[tuple[int, float], str, str]:
    return min(severity(cell) for cell in row.cells if cell), row.id, row.metric
