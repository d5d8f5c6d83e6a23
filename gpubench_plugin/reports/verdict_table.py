"""Comparisons for a terminal: who is compared, a table with a column per head, reasons, counts.

Where a table does not fit it loses, in this order: the number of launches, the word beside a
verdict's mark, the interval, the metric's column (a heading for each metric instead), and rows in
which nothing changed, or of several heads their values, so that base and changes are left. Then it
loses both, and further heads follow in a table of their own. The base is in every table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpubench_plugin.core.format import counted
from gpubench_plugin.core.records import Comparison, VerdictPart
from gpubench_plugin.reports.markup import BOLD, DOUBTFUL, PLAIN, Line, Markup, marked
from gpubench_plugin.reports.names import ShortNames, short_names
from gpubench_plugin.reports.table import (
    GAP,
    Column,
    column,
    table,
    width_of,
    wrapped,
)
from gpubench_plugin.reports.text import UNICODE, Glyphs
from gpubench_plugin.reports.text import width as text_width
from gpubench_plugin.reports.verdict_reasons import heads_text, reason_lines, reworded, with_labels
from gpubench_plugin.reports.verdict_rows import Row, rows_of
from gpubench_plugin.reports.verdicts import (
    change_text,
    changed,
    colour,
    difference_text,
    headline,
    interval_text,
    kind_text,
    mark,
    number,
    overall_colour,
)

_WHOLE_NAME: Final = 40
"""Width of a name that is not shortened for the sake of launches or intervals."""
_SHORT_NAME: Final = 20
"""Width to which names are shortened before anything else goes: enough to tell tests apart."""
_MAX_DIFFERENCES: Final = 8
"""Environment differences listed, so that verdicts stay on the screen; JSON has all."""


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """What a table shows beside names, bases and changes."""

    launches: bool = False
    interval: bool = False
    words: bool = False
    metrics: bool = False
    unchanged: bool = True
    values: bool = True


_OF_ONE_HEAD: Final = (
    _Layout(launches=True, interval=True, words=True, metrics=True),
    _Layout(interval=True, words=True, metrics=True),
    _Layout(interval=True, metrics=True),
    _Layout(metrics=True),
    _Layout(),
    _Layout(unchanged=False),
)
_OF_SEVERAL_HEADS: Final = (
    _Layout(metrics=True),
    _Layout(),
    _Layout(unchanged=False),
    _Layout(values=False),
    _Layout(unchanged=False, values=False),
)


def head_labels(number_of_heads: int) -> list[str]:
    """``head``; of several ``head 1``, ``head 2`` and so on."""
    if number_of_heads == 1:
        return ["head"]
    return [f"head {position}" for position in range(1, number_of_heads + 1)]


def verdict_lines(
    comparisons: Sequence[Comparison],
    width: int,
    glyphs: Glyphs = UNICODE,
    *,
    only_changed: bool = False,
    longest_name: int | None = None,
) -> list[Line]:
    """Sides, notes, table of all verdicts (changed ones `only_changed`), reasons and counts.

    All `comparisons` have the same base. With `longest_name` names have at most so many columns, as
    in other tables of the screen, even where there is room for more.
    """
    names = short_names(v.id for comparison in comparisons for v in comparison.verdicts)
    changed_ids = [v.id for comparison in comparisons for v in changed(comparison.verdicts)]
    rows = rows_of(comparisons)
    visible = [row for row in rows if not (only_changed and row.is_unchanged)]
    verdict_table = _Table(visible, len(comparisons), width, glyphs, longest_name)
    labels = verdict_table.place(names, changed_ids)
    parts = (
        [
            *_sides(comparisons, width),
            *_common(names, width),
            *_notes(comparisons, labels, width, glyphs),
        ],
        [*verdict_table.lines(labels), *_unlisted(len(rows) - verdict_table.row_count)],
        [
            *reason_lines(comparisons, labels, width, glyphs),
            *_environment(comparisons, width, glyphs),
            *_counts(comparisons, width, glyphs),
        ],
    )
    return [line for part in parts if part for line in ((), *part)][1:]


class _Table:
    """The table in the first layout that fits, or in several tables if none does."""

    def __init__(
        self,
        rows: Sequence[Row],
        heads: int,
        width: int,
        glyphs: Glyphs,
        longest_name: int | None,
    ):
        self._all_rows = rows
        self._longest_name = longest_name
        self._head_labels = head_labels(heads)
        self._heads = range(heads)
        self._width = width
        self._glyphs = glyphs
        self._layout = _Layout()
        self._heads_per_table = heads

    def place(self, names: ShortNames, other_ids: Iterable[str]) -> dict[str, str]:
        """Choose the layout; the label of each benchmark, its name in the room that is left.

        Labels of all rows and of `other_ids` differ; others are whole names.
        """
        layouts = _OF_ONE_HEAD if len(self._heads) == 1 else _OF_SEVERAL_HEADS
        for self._layout in layouts:
            least = self._least_name(names)
            if width_of(self._columns(self._heads)) + least <= self._width:
                break
        while self._heads_per_table > 1 and (
            width_of(self._columns(self._first_heads)) + least > self._width
        ):
            self._heads_per_table -= 1
        room = self._width - self._indent - width_of(self._columns(self._first_heads))
        ids = [*dict.fromkeys((*(row.id for row in self._rows), *other_ids))]
        room = max(room, least - self._indent) if self._rows else self._width // 2
        fitting = names.fitting(min(room, self._longest_name or room), self._glyphs)
        return {**names.by_id, **dict(zip(ids, fitting.of(ids), strict=True))}

    @property
    def row_count(self) -> int:
        """Number of rows of the table."""
        return len(self._rows)

    @property
    def _first_heads(self) -> Sequence[int]:
        return self._heads[: self._heads_per_table]

    @property
    def _rows(self) -> list[Row]:
        """Rows of the layout: by metric where metrics are headings."""
        rows = [row for row in self._all_rows if self._layout.unchanged or not row.is_unchanged]
        if self._layout.metrics:
            return rows
        metrics = [*dict.fromkeys(row.metric for row in rows)]
        return sorted(rows, key=lambda row: metrics.index(row.metric))

    @property
    def _indent(self) -> int:
        return 0 if self._layout.metrics else len(GAP)

    def _least_name(self, names: ShortNames) -> int:
        """The width to which names are shortened before anything is left out, and their indent."""
        texts = names.of(dict.fromkeys(row.id for row in self._rows))
        is_rich = self._layout.launches or self._layout.interval
        least = _WHOLE_NAME if is_rich else max(_SHORT_NAME, self._width // 4)
        return min(least, max(map(text_width, texts), default=0)) + self._indent

    def lines(self, labels: Mapping[str, str]) -> Iterator[Line]:
        """The tables, a title row each; nothing without rows."""
        if not (rows := self._rows):
            return
        indent = " " * self._indent
        cells = [f"{indent}{labels[row.id]}" for row in rows]
        for start in range(0, len(self._heads), self._heads_per_table):
            if start:
                yield ()
            columns = self._columns(self._heads[start : start + self._heads_per_table])
            yield from table(
                [Column(title="benchmark", cells=cells), *columns],
                self._glyphs,
                nothing=self._glyphs.nothing,
                groups=() if self._layout.metrics else [row.metric for row in rows],
            )

    def _columns(self, heads: Sequence[int]) -> list[Column]:
        """The columns that are not empty, without that of the names."""
        rows = self._rows
        columns = [
            column("metric", [row.metric for row in rows]),
            column("base", [self._base(row) for row in rows], numeric=True),
        ][not self._layout.metrics :]
        for head in heads:
            cells = [row.cells[head] for row in rows]
            if len(self._heads) == 1:
                columns += self._single(cells)
            else:
                columns += self._one_of_several(self._head_labels[head], cells)
        return [each for each in columns if any(each.cells)]

    def _single(self, cells: Sequence[VerdictPart | None]) -> Iterator[Column]:
        colours = _colours(cells)
        yield column("head", [self._value(cell) for cell in cells], numeric=True)
        yield replace(
            column("change", [change_text(cell) if cell else "" for cell in cells], numeric=True),
            markup=colours,
        )
        if self._layout.interval:
            intervals = [interval_text(cell) if cell else "" for cell in cells]
            yield column("interval", intervals, numeric=True)
        if self._layout.launches:
            launches = [getattr(cell, "launches", 0) for cell in cells]
            texts = (
                [str(number or "") for number in launches] if max(launches, default=0) > 1 else []
            )
            yield column("launches", texts, numeric=True)
        verdicts = [self._verdict(cell, words=self._layout.words) for cell in cells]
        yield Column(title="verdict" * self._layout.words, cells=verdicts, markup=colours)

    def _one_of_several(self, label: str, cells: Sequence[VerdictPart | None]) -> Iterator[Column]:
        if self._layout.values:
            yield column(label, [self._value(cell) for cell in cells], numeric=True)
        changes = [self._marked_change(cell, with_word=not self._layout.values) for cell in cells]
        title = "change" if self._layout.values else label
        yield Column(title=title, cells=changes, numeric=True, markup=_colours(cells))

    def _base(self, row: Row) -> str:
        cell = row.base
        return number(cell.base, cell.unit, self._glyphs) if cell else ""

    def _value(self, cell: VerdictPart | None) -> str:
        """The head's value, or why there is none."""
        if cell is None:
            return ""
        return kind_text(cell.kind) if cell.head is None else self._number(cell)

    def _number(self, cell: VerdictPart) -> str:
        return number(cell.head, cell.unit, self._glyphs)

    def _verdict(self, cell: VerdictPart | None, *, words: bool) -> str:
        if cell is None:
            return ""
        sign = mark(cell.kind, self._glyphs)
        return f"{sign} {kind_text(cell.kind)}".strip() if words else sign

    def _marked_change(self, cell: VerdictPart | None, *, with_word: bool) -> str:
        if cell is None:
            return ""
        word = kind_text(cell.kind) if with_word and cell.head is None else ""
        return f"{change_text(cell) or word} {mark(cell.kind, self._glyphs)}".strip()


def _colours(cells: Sequence[VerdictPart | None]) -> list[Markup]:
    return [PLAIN if cell is None else colour(cell) for cell in cells]


def _sides(comparisons: Sequence[Comparison], width: int) -> Iterator[Line]:
    """``base  20261124T101500Z_run_0a1b2c``, and so for each head."""
    labels = ["base", *head_labels(len(comparisons))]
    texts = [comparisons[0].base, *(comparison.head for comparison in comparisons)]
    room = max(map(len, labels)) + len(GAP)
    for label, text in zip(labels, texts, strict=True):
        lines = wrapped(text, width - room, cut_words=True)
        yield ((f"{label:{room}}", PLAIN), (lines[0], BOLD))
        yield from marked((f"{'':{room}}{line}" for line in lines[1:]), BOLD)


def _common(names: ShortNames, width: int) -> Iterator[Line]:
    """What no name says since it is the same for all."""
    if names.common:
        yield from marked(_wrapped(f"all: {', '.join(names.common)}", width))


def _wrapped(text: str, width: int) -> list[str]:
    return wrapped(text, width, hanging=GAP, cut_words=True)


def _by_text(texts: Sequence[Sequence[str]]) -> Mapping[str, list[int]]:
    """Positions of the heads that have each text."""
    heads: dict[str, list[int]] = {}
    for position, of_head in enumerate(texts):
        for text in of_head:
            heads.setdefault(text, []).append(position)
    return heads


def _notes(
    comparisons: Sequence[Comparison], labels: Mapping[str, str], width: int, glyphs: Glyphs
) -> Iterator[Line]:
    """Notes with the benchmarks' labels for their ids, and the heads that they are about."""
    texts = [[with_labels(note, labels) for note in comparison.notes] for comparison in comparisons]
    for note, heads in _by_text(texts).items():
        prefix = heads_text(heads, len(comparisons))
        text = ": ".join(filter(None, (prefix, reworded(note, glyphs))))
        yield from marked(_wrapped(text, width), DOUBTFUL)


def _environment(comparisons: Sequence[Comparison], width: int, glyphs: Glyphs) -> Iterator[Line]:
    texts = [
        [difference_text(difference, glyphs) for difference in each.environment_differences]
        for each in comparisons
    ]
    differences = [
        f"{text}{f' ({prefix})' if (prefix := heads_text(heads, len(comparisons))) else ''}"
        for text, heads in _by_text(texts).items()
    ]
    if not differences:
        return
    yield (("environment differences:", BOLD),)
    for text in differences[:_MAX_DIFFERENCES]:
        yield from marked(wrapped(text, width, indent=GAP, hanging=GAP, cut_words=True))
    if len(differences) > _MAX_DIFFERENCES:
        hidden_count = len(differences) - _MAX_DIFFERENCES
        yield ((f"  and {hidden_count} more; --format=json has all", PLAIN),)


def _unlisted(number_of_rows: int) -> Iterator[Line]:
    if number_of_rows:
        yield ((f"not listed: {counted(number_of_rows, 'row')} without a change", PLAIN),)


def _counts(comparisons: Sequence[Comparison], width: int, glyphs: Glyphs) -> Iterator[Line]:
    """The counts per head with the marks of the table, which they explain."""
    titles = head_labels(len(comparisons))
    for title, comparison in zip(titles, comparisons, strict=True):
        prefix = f"{title}: " if len(titles) > 1 else ""
        text = f"{prefix}{headline(comparison.verdicts, glyphs, marks=True)}"
        yield from marked(_wrapped(text, width), overall_colour(comparison.verdicts))
