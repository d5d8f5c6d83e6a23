"""Tables of plain text, fitted into the columns of a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpubench_plugin.reports.table import GAP, Column
from gpubench_plugin.reports.text import cut, fill, printable, width

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpubench_plugin.reports.glyphs import Glyphs

_LEAST: Final = 6
"""Columns of the terminal below which no column is cut."""


def column(title: str, texts: Iterable[object], *, numeric: bool = False) -> Column:
    """A column of `texts`, which may come from anywhere: they are made safe for a terminal."""
    return Column(title=title, cells=[printable(str(text)) for text in texts], numeric=numeric)


def lines(columns: Sequence[Column], total: int, glyphs: Glyphs, *, whole: int = 1) -> list[str]:
    """The table with its titles, in `total` columns of the terminal if it can be cut that far.

    The first `whole` columns are never cut, since people copy from them; of the others the widest
    that holds no numbers is cut first, and where that is not enough, the last column is left out.
    So is a column without any content.
    """
    shown = [c for i, c in enumerate(columns) if i == 0 or any(c.cells)]
    widths = _fitted(shown, total, whole)
    while _sum(widths) > total and len(shown) > whole:
        shown = shown[:-1]
        widths = _fitted(shown, total, whole)
    texts = ([c.title for c in shown], *zip(*(c.cells for c in shown), strict=True))
    return [_line(row, shown, widths, glyphs) for row in texts]


def _fitted(columns: Sequence[Column], total: int, whole: int) -> list[int]:
    widths = [c.width for c in columns]
    can_be_cut = [i for i, c in enumerate(columns) if i >= whole and not c.numeric]
    while _sum(widths) > total:
        widest = max(can_be_cut, key=widths.__getitem__, default=None)
        if widest is None or widths[widest] <= _LEAST:
            break
        widths[widest] -= 1
    return widths


def _sum(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _line(
    row: Sequence[str], columns: Sequence[Column], widths: Sequence[int], glyphs: Glyphs
) -> str:
    cells = (
        fill(cut(text, columns_of, glyphs.ellipsis), columns_of, right=c.numeric)
        for text, c, columns_of in zip(row, columns, widths, strict=True)
    )
    return GAP.join(cells).rstrip()


def wrapped(text: str, total: int, indent: str = "") -> list[str]:
    """`text`, made safe for a terminal, on lines of at most `total` columns.

    Broken between words; a word that is longer than a line has one of its own.
    """
    found: list[str] = []
    line = indent
    for word in printable(text).split(" "):
        longer = f"{line}{word}" if line == indent else f"{line} {word}"
        if line != indent and width(longer) > total:
            found.append(line)
            longer = f"{indent}{word}"
        line = longer
    return [*found, line]
