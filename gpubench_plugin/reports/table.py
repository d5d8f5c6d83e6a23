"""Tables for a terminal, and text broken into its lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Final

from gpubench_plugin.reports.markup import BOLD, PLAIN, Line, Markup, Span, line_of, plain
from gpubench_plugin.reports.text import (
    Glyphs,
    cut,
    defuse_commands,
    fill,
    printable,
    shorten,
    width,
)

GAP: Final = "  "
_LEAST: Final = 6
"""Columns of the terminal below which no column is cut."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A title and one cell per row, safe for a terminal; an empty cell has nothing to say.

    `markup` is that of the cells; empty, they have none.
    """

    title: str
    cells: Sequence[str]
    numeric: bool = False
    markup: Sequence[Markup] = ()

    @cached_property
    def width(self) -> int:
        """Width in terminal columns."""
        return max(map(width, (self.title, *self.cells)))


def column(title: str, texts: Iterable[object], *, numeric: bool = False) -> Column:
    """A column of arbitrary `texts`, sanitized for a terminal."""
    return Column(title=title, cells=[printable(str(text)) for text in texts], numeric=numeric)


def width_of(columns: Iterable[Column]) -> int:
    """Columns of the terminal that `columns` take behind another one, with their gaps."""
    return sum(len(GAP) + column.width for column in columns)


def narrowed(
    columns: Mapping[str, Column], give_way: Iterable[str], room: int
) -> dict[str, Column]:
    """The `columns` by name, of which those that `give_way` go one by one until all fit.

    They fit where they take `room` behind another column.
    """
    left = dict(columns)
    for name in give_way:
        if width_of(left.values()) <= room:
            break
        left.pop(name, None)
    return left


def names_column(
    names: Sequence[str], others: Iterable[Column], total: int, glyphs: Glyphs, indent: str = ""
) -> Column:
    """The column of benchmarks, cut in the middle to the room that the `others` leave of `total`.

    What tells the names apart is kept.
    """
    title = "benchmark"
    room = max(total - width_of(others), len(title)) - len(indent)
    cells = [indent + name for name in shorten(names, room, glyphs.ellipsis)]
    return Column(title=title, cells=cells)


def table(
    columns: Sequence[Column],
    glyphs: Glyphs,
    *,
    total: int | None = None,
    whole: int = 1,
    nothing: str = "",
    groups: Sequence[str] = (),
) -> Iterator[Line]:
    """The titles, if there are any, and the rows; only the first column is shown without content.

    So that it fits into `total` columns, where given, the widest that holds no numbers is cut
    first, and where that is not enough, the last one goes; so many as `whole` of the first are
    never cut, since people copy from them. `nothing` stands for an empty cell among numbers;
    `groups` has the title of each row's group, above the first of its rows.
    """
    shown = [c for number, c in enumerate(columns) if number == 0 or any(c.cells)]
    widths = _fitted(shown, total, whole)
    shown = shown[: len(widths)]

    def row(cells: Iterable[str], markups: Iterable[Markup]) -> Line:
        spans: list[Span] = []
        for text, markup, room, c in zip(cells, markups, widths, shown, strict=True):
            if spans:
                spans.append((GAP, markup if markup == spans[-1][1] else PLAIN))
            shortened = cut(text, room, glyphs.ellipsis)
            spans.append((fill(shortened, room, right=c.numeric), markup))
        return line_of(spans)

    if any(c.title for c in shown):
        yield row((c.title for c in shown), [BOLD] * len(shown))
    numbers = range(len(shown[0].cells))
    for group, rows in groupby(numbers, key=lambda number: groups[number] if groups else ""):
        if group:
            yield ((group, PLAIN),)
        for number in rows:
            yield row(
                (c.cells[number] or nothing * c.numeric for c in shown),
                [c.markup[number] if c.markup else PLAIN for c in shown],
            )


def lines(
    columns: Sequence[Column], total: int | None, glyphs: Glyphs, *, uncut_columns: int = 1
) -> list[str]:
    """The :func:`table` as plain text."""
    return [plain(line) for line in table(columns, glyphs, total=total, whole=uncut_columns)]


def _fitted(columns: Sequence[Column], total: int | None, uncut_columns: int) -> list[int]:
    """How wide each column is; the last ones have none where they do not fit."""
    widths = [c.width for c in columns]
    if total is None:
        return widths
    while sum(widths) + len(GAP) * (len(widths) - 1) > total:
        can_be_cut = [
            number
            for number in range(uncut_columns, len(widths))
            if not columns[number].numeric and widths[number] > _LEAST
        ]
        if can_be_cut:
            widths[max(can_be_cut, key=widths.__getitem__)] -= 1
        elif len(widths) > uncut_columns:
            widths = [c.width for c in columns[: len(widths) - 1]]
        else:
            break
    return widths


def wrapped(
    text: str, total: int, indent: str = "", *, hanging: str = "", cut_words: bool = False
) -> list[str]:
    """Wrap `text`, sanitized for a terminal, to `total` columns.

    Broken between words; a word that is longer than a line has one of its own, or several with
    `cut_words`. All lines begin with `indent`, and all but the first with `hanging`, too.
    """
    room = max(total - len(indent) - len(hanging), _LEAST) if cut_words else None
    first, *words = (part for word in printable(text).split(" ") for part in _parts(word, room))
    lines = [f"{indent}{first}"]
    for word in words:
        extended = f"{lines[-1]} {word}"
        if width(extended) > total:
            lines.append(f"{indent}{hanging}{word}")
        else:
            lines[-1] = extended
    return [defuse_commands(line) for line in lines]  # a part of a word may be one


def _parts(word: str, room: int | None) -> Iterator[str]:
    """The word in parts of at most `room` columns; None: as one."""
    while room is not None and width(word) > room:
        part = cut(word, room, ellipsis="")
        yield part
        word = word.removeprefix(part)
    yield word
