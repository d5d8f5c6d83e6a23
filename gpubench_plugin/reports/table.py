"""Tables for a terminal, and text broken into its lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Final

from gpubench_plugin.reports.markup import BOLD, PLAIN, Line, Markup, Span, line_of, marked, plain
from gpubench_plugin.reports.text import cut, defuse_commands, fill, printable, width

GAP: Final = "  "
_MIN_WIDTH: Final = 6  # below which no column is cut: a few letters and an ellipsis


@dataclass(frozen=True, kw_only=True)
class Column:
    """A title and one cell per row, safe for a terminal; `markup` is per cell, or empty."""

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
    """Width of `columns` behind another one, with their gaps."""
    return sum(len(GAP) + column.width for column in columns)


def narrowed(
    columns: Mapping[str, Column], give_way: Iterable[str], room: int
) -> dict[str, Column]:
    """Drop columns, in the order of `give_way`, until all fit into `room` behind another one."""
    remaining = dict(columns)
    for name in give_way:
        if width_of(remaining.values()) <= room:
            break
        remaining.pop(name, None)
    return remaining


def table(
    columns: Sequence[Column],
    *,
    total: int | None = None,
    uncut_columns: int = 1,
    nothing: str = "",
    groups: Sequence[str] = (),
) -> Iterator[Line]:
    """The titles, if there are any, and the rows; empty columns but the first are left out.

    To fit into `total`, the widest columns of texts are cut, and if that is not enough, the last
    ones are dropped; the first `uncut_columns` are never cut, for copying. `nothing` replaces empty
    cells among numbers; `groups` has the title of each row's group, printed above it.
    """
    visible = [c for number, c in enumerate(columns) if number == 0 or any(c.cells)]
    widths = _fitted(visible, total, uncut_columns)
    visible = visible[: len(widths)]

    def row(cells: Iterable[str], markups: Iterable[Markup]) -> Line:
        spans: list[Span] = []
        for text, markup, room, c in zip(cells, markups, widths, visible, strict=True):
            if spans:
                spans.append((GAP, markup if markup == spans[-1][1] else PLAIN))
            spans.append((fill(cut(text, room), room, right=c.numeric), markup))
        return line_of(spans)

    if any(c.title for c in visible):
        yield row((c.title for c in visible), [BOLD] * len(visible))
    numbers = range(len(visible[0].cells))
    for group, rows in groupby(numbers, key=lambda number: groups[number] if groups else ""):
        if group:
            yield ((group, PLAIN),)
        for number in rows:
            yield row(
                (c.cells[number] or nothing * c.numeric for c in visible),
                [c.markup[number] if c.markup else PLAIN for c in visible],
            )


def lines(columns: Sequence[Column], total: int | None, *, uncut_columns: int = 1) -> list[str]:
    """The :func:`table` as plain text."""
    return [plain(line) for line in table(columns, total=total, uncut_columns=uncut_columns)]


def _fitted(columns: Sequence[Column], total: int | None, uncut_columns: int) -> list[int]:
    """Widths of the columns, without the last ones that do not fit."""
    widths = [c.width for c in columns]
    while total is not None and sum(widths) + len(GAP) * (len(widths) - 1) > total:
        can_be_cut = [
            number
            for number in range(uncut_columns, len(widths))
            if not columns[number].numeric and widths[number] > _MIN_WIDTH
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

    Lines break between words, and with `cut_words` also inside words longer than a line. All lines
    start with `indent`, and all but the first with `hanging`, too.
    """
    room = max(total - len(indent) - len(hanging), _MIN_WIDTH) if cut_words else None
    first, *words = (part for word in printable(text).split(" ") for part in _parts(word, room))
    lines = [f"{indent}{first}"]
    for word in words:
        extended = f"{lines[-1]} {word}"
        if width(extended) > total:
            lines.append(f"{indent}{hanging}{word}")
        else:
            lines[-1] = extended
    return [defuse_commands(line) for line in lines]  # a part of a word may be one


def paragraph(text: str, total: int, markup: Markup = PLAIN) -> Iterator[Line]:
    """The `text` wrapped to `total` columns, words longer than a line as well, hanging."""
    return marked(wrapped(text, total, hanging=GAP, cut_words=True), markup)


def labelled(label: str, text: str, total: int) -> Iterator[str]:
    """The `text` beside the `label`, in `total` columns: its lines begin one below another."""
    first, *others = wrapped(text, total - len(label))
    yield f"{label}{first}".rstrip()
    yield from (f"{'':{len(label)}}{line}" for line in others)


def _parts(word: str, room: int | None) -> Iterator[str]:
    """The word in parts of at most `room` columns; None: as one."""
    while room is not None and width(word) > room:
        part = cut(word, room, ellipsis="")
        yield part
        word = word.removeprefix(part)
    yield word
