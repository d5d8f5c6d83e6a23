"""Comparisons for a terminal: who is compared, a table with a column per head, reasons, counts.

Where a table does not fit it loses, in this order: the number of launches, the word beside a
verdict's mark, the interval, and the metric's column (a heading for each metric instead). Further
heads follow in a table of their own. The base is in every table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpubench_plugin.core.format import counted
from gpubench_plugin.core.verdicts import Comparison, Verdict, VerdictPart
from gpubench_plugin.reports.markup import BOLD, CAUTION, PLAIN, Line, Markup, marked
from gpubench_plugin.reports.names import ShortNames, short_names
from gpubench_plugin.reports.reasons import SEPARATOR, by_text, heads_text, reasons, with_labels
from gpubench_plugin.reports.table import GAP, Column, column, paragraph, table, width_of, wrapped
from gpubench_plugin.reports.text import NOTHING, printable
from gpubench_plugin.reports.text import width as text_width
from gpubench_plugin.reports.verdicts import (
    change_text,
    colour,
    difference_text,
    has_value,
    headline,
    interval_text,
    kind_text,
    mark,
    number,
    overall_colour,
    severity,
)

# Width of a name that is not shortened for the sake of launches or intervals.
_WHOLE_NAME: Final = 40
# Width to which names are shortened before anything else goes: enough to tell tests apart.
_SHORT_NAME: Final = 20
# Columns that are left out, in this order, for the sake of whole names.
_DISPENSABLE: Final = ("launches", "verdict", "interval")
# Environment differences listed, so that verdicts stay on the screen; JSON has all.
_MAX_DIFFERENCES: Final = 8


def head_labels(number_of_heads: int) -> list[str]:
    """``head``; of several ``head 1``, ``head 2`` and so on."""
    if number_of_heads == 1:
        return ["head"]
    return [f"head {position}" for position in range(1, number_of_heads + 1)]


def verdict_lines(
    comparisons: Sequence[Comparison],
    width: int,
    *,
    only_changed: bool = False,
    longest_name: int | None = None,
) -> list[Line]:
    """Sides, notes, table of all verdicts (changed ones `only_changed`), reasons and counts.

    All `comparisons` have the same base. With `longest_name` names have at most so many columns, as
    in other tables of the screen, even where there is room for more.
    """
    names = short_names(v.id for comparison in comparisons for v in comparison.verdicts)
    rows = _rows_of(comparisons)
    visible = [row for row in rows if not (only_changed and row.is_unchanged)]
    verdict_table = _Table(visible, len(comparisons), names, width)
    room = min(verdict_table.name_room, longest_name or width)
    labels = names.fitting(room).by_id
    hidden_text = f"not listed: {counted(len(rows) - len(visible), 'row')} without a change"
    unlisted = [((hidden_text, PLAIN),)] if len(visible) < len(rows) else []
    parts = (
        [*_sides(comparisons, names.file, width), *_notes(comparisons, labels, width)],
        [*verdict_table.lines(labels), *unlisted],
        [
            *_reason_lines(comparisons, labels, width),
            *_environment(comparisons, width),
            *_counts(comparisons, width),
        ],
    )
    return [line for part in parts if part for line in ((), *part)][1:]


class _Table:
    """A table of as many heads as fit, and the same columns for further heads below it.

    Attributes:
        name_room: width that is left for names.
    """

    def __init__(self, rows: Sequence[_Row], heads: int, names: ShortNames, width: int):
        self._rows = rows
        self._heads = range(heads)
        self._left_out: set[str] = set()
        longest = max((text_width(name) for name in names.of(row.id for row in rows)), default=0)
        least = min(longest, max(_SHORT_NAME, width // 4))
        self._indent = ""
        for name in (*_DISPENSABLE, "metric"):
            needed = least if name == "metric" else min(longest, _WHOLE_NAME)
            if self._width(heads) + needed <= width:
                break
            self._left_out.add(name)
        if "metric" in self._left_out:
            self._indent = GAP
            metrics = [*dict.fromkeys(row.metric for row in rows)]
            self._rows = sorted(rows, key=lambda row: metrics.index(row.metric))
        self._heads_per_table = heads
        while (room := width - self._width(self._heads_per_table)) < least:
            if self._heads_per_table == 1:
                break
            self._heads_per_table -= 1
        self.name_room = max(room, least) if rows else width // 2

    def _width(self, heads: int) -> int:
        """Width beside the names, of so many heads."""
        return len(self._indent) + width_of(self._columns(self._heads[:heads]).values())

    def lines(self, labels: Mapping[str, str]) -> Iterator[Line]:
        """The tables, a title row each; nothing without rows."""
        cells = [f"{self._indent}{labels[row.id]}" for row in self._rows]
        for start in range(0, len(self._heads) if cells else 0, self._heads_per_table):
            if start:
                yield ()
            columns = self._columns(self._heads[start : start + self._heads_per_table])
            yield from table(
                [Column(title="benchmark", cells=cells), *columns.values()],
                nothing=NOTHING,
                groups=[row.metric for row in self._rows] if self._indent else (),
            )

    def _columns(self, heads: Sequence[int]) -> dict[str, Column]:
        """The columns that are neither empty nor left out, without that of the names."""
        bases = [row.base for row in self._rows]
        base_texts = [number(c.base, c.unit) if c else "" for c in bases]
        columns = {
            "metric": column("metric", [row.metric for row in self._rows]),
            "base": column("base", base_texts, numeric=True),
        }
        for head in heads:
            columns |= self._of_head(head)
        return {
            name: each
            for name, each in columns.items()
            if any(each.cells) and name not in self._left_out
        }

    def _of_head(self, head: int) -> dict[str, Column]:
        """The columns of a head; of several heads, the change has the mark."""
        cells = [row.cells[head] for row in self._rows]
        colours = [colour(cell) if cell else PLAIN for cell in cells]

        def show(
            title: str, text: Callable[[VerdictPart], str], markup: Sequence[Markup] = ()
        ) -> Column:
            texts = [text(cell) if cell else "" for cell in cells]
            is_numeric = title not in {"verdict", ""}
            return Column(title=title, cells=texts, numeric=is_numeric, markup=markup)

        label = head_labels(len(self._heads))[head]
        values = {label: show(label, self._value)}
        if len(self._heads) > 1:
            marked_change = show(
                "change", lambda c: f"{change_text(c)} {mark(c.kind)}".strip(), colours
            )
            return {**values, f"change of {label}": marked_change}
        launches = [getattr(cell, "launches", 0) for cell in cells]
        launch_texts = [str(n or "") * (max(launches) > 1) for n in launches]
        columns = {
            **values,
            "change": show("change", change_text, colours),
            "interval": show("interval", interval_text),
            "launches": column("launches", launch_texts, numeric=True),
            "verdict": show(
                "verdict", lambda c: f"{mark(c.kind)} {kind_text(c.kind)}".strip(), colours
            ),
        }
        if "verdict" in self._left_out:
            columns["mark"] = show("", lambda c: mark(c.kind), colours)
        return columns

    def _value(self, cell: VerdictPart) -> str:
        """The head's value, or why there is none."""
        if cell.head is None:
            return kind_text(cell.kind)
        return printable(number(cell.head, cell.unit))


@dataclass(frozen=True, kw_only=True)
class _Row:
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


def _rows_of(comparisons: Sequence[Comparison]) -> list[_Row]:
    """Rows of all verdicts that have a value, the worst first.

    A step time is judged by several metrics, of which one decides. The row of each metric that
    decides for a head also shows what the others say of it; one in which nothing changed is left
    out if another one of the benchmark has changes.
    """
    cells = [_cells(comparison.verdicts) for comparison in comparisons]
    verdicts = [verdict for comparison in comparisons for verdict in comparison.verdicts]
    keys = dict.fromkeys((v.id, v.metric) for v in verdicts if has_value(v))
    rows = [
        _Row(id=i, metric=name, cells=tuple(c.get((i, name)) or c.get((i, "")) for c in cells))
        for i, name in keys
    ]
    parts = {(verdict.id, part.metric) for verdict in verdicts for part in verdict.parts}
    step_times = [row for row in rows if (row.id, row.metric) in parts]
    changed_ids = {row.id for row in step_times if not row.is_unchanged}
    hidden = {(r.id, r.metric) for r in step_times if r.is_unchanged and r.id in changed_ids}
    return sorted((row for row in rows if (row.id, row.metric) not in hidden), key=_severity)


def _cells(verdicts: Iterable[Verdict]) -> Mapping[tuple[str, str], VerdictPart]:
    """Verdicts and their parts by node id and metric; those on a whole benchmark without one."""
    cells: dict[tuple[str, str], VerdictPart] = {}
    for verdict in verdicts:
        cells |= {(verdict.id, part.metric): part for part in verdict.parts}
        cells[verdict.id, verdict.metric] = verdict
    return cells


def _severity(row: _Row) -> tuple[tuple[int, float], str, str]:
    return min(severity(cell) for cell in row.cells if cell), row.id, row.metric


def _sides(comparisons: Sequence[Comparison], file: str, width: int) -> Iterator[Line]:
    """``base  20261124T101500Z_run_0a1b2c``, and so for each head and the `file` of all tests."""
    labels = ["base", *head_labels(len(comparisons)), *["file"] * bool(file)]
    texts = [comparisons[0].base, *(comparison.head for comparison in comparisons), file]
    room = max(map(len, labels)) + len(GAP)
    for label, text in zip(labels, texts, strict=False):
        lines = wrapped(text, width - room, cut_words=True)
        yield ((f"{label:{room}}", PLAIN), (lines[0], BOLD))
        yield from marked((f"{'':{room}}{line}" for line in lines[1:]), BOLD)


def _notes(
    comparisons: Sequence[Comparison], labels: Mapping[str, str], width: int
) -> Iterator[Line]:
    """Notes with the benchmarks' labels for their ids, and the heads that they are about."""
    texts = [[with_labels(note, labels) for note in comparison.notes] for comparison in comparisons]
    for note, heads in by_text(texts).items():
        prefix = heads_text(heads, len(comparisons))
        text = ": ".join(filter(None, (prefix, note)))
        yield from paragraph(text, width, CAUTION)


def _environment(comparisons: Sequence[Comparison], width: int) -> Iterator[Line]:
    texts = [
        [difference_text(difference) for difference in each.environment_differences]
        for each in comparisons
    ]
    differences = [
        f"{text}{f' ({prefix})' if (prefix := heads_text(heads, len(comparisons))) else ''}"
        for text, heads in by_text(texts).items()
    ]
    if not differences:
        return
    yield (("environment differences:", BOLD),)
    for text in differences[:_MAX_DIFFERENCES]:
        yield from marked(wrapped(text, width, indent=GAP, hanging=GAP, cut_words=True))
    if len(differences) > _MAX_DIFFERENCES:
        hidden_count = len(differences) - _MAX_DIFFERENCES
        yield ((f"  and {hidden_count} more; --format=json has all", PLAIN),)


def _counts(comparisons: Sequence[Comparison], width: int) -> Iterator[Line]:
    """The counts per head with the marks of the table, which they explain."""
    titles = head_labels(len(comparisons))
    for title, comparison in zip(titles, comparisons, strict=True):
        prefix = f"{title}: " if len(titles) > 1 else ""
        text = f"{prefix}{headline(comparison.verdicts, mark)}"
        yield from paragraph(text, width, overall_colour(comparison.verdicts))


def _reason_lines(
    comparisons: Sequence[Comparison], labels: Mapping[str, str], width: int
) -> Iterator[Line]:
    for verdict, subject, clauses in reasons(comparisons, labels):
        text = ": ".join(filter(None, (subject, SEPARATOR.join(clauses))))
        yield from paragraph(text, width, colour(verdict))
