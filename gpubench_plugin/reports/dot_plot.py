"""Text dot plots of values in time order, with flags below."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

from gpubench_plugin.core.format import counted
from gpubench_plugin.core.quality_flags import doubtful_flags, other_flags
from gpubench_plugin.reports.markup import (
    BOLD,
    CAUTION,
    GOOD,
    PLAIN,
    Line,
    Markup,
    Span,
    line_of,
    marked,
)
from gpubench_plugin.reports.table import wrapped
from gpubench_plugin.reports.text import LEAST_EXTENT, cut, fill, printable, width
from gpubench_plugin.reports.verdicts import number

Sign = Literal["○", "●", "◆"]


@dataclass(frozen=True, kw_only=True)
class Dot:
    """One value with the symbol of its series and its flags."""

    value: float
    sign: Sign
    flags: tuple[str, ...] = ()


# Rows of a plot: odd, for a label in the middle, and few, for several plots on a screen.
_ROWS: Final = 9
# Values this many times above or below all medians are outside: beside them others look alike.
_FAR: Final = 3.0
# Columns of a plot on the narrowest terminal.
_MIN_COLUMNS: Final = 8
# Share of a terminal for the labels, at most.
_GUTTER: Final = 5
_ABOVE, _BELOW, _RAISED = "^", "v", "!"

_MARKUP: Final[Mapping[Sign, Markup]] = {"○": PLAIN, "●": BOLD, "◆": GOOD}


def dot_lines(dots: Sequence[Dot], unit: str, noun: str, total: int) -> Iterator[Line]:
    """Plot one or more `dots`, in time order, in `total` columns; of many, neighbours share one.

    `noun` is what a dot is, in the singular.
    """
    scale = _Scale.of(dots)
    labels = {row: number(scale.at(row), unit) for row in (0, _ROWS // 2, _ROWS - 1)}
    all_flags = {flag for dot in dots for flag in dot.flags}
    flags = (*doubtful_flags(all_flags), *other_flags(sorted(all_flags)))
    names = (noun, *labels.values(), *map(printable, flags))
    gutter = min(max(map(width, names)), total // _GUTTER)
    available = max(total - gutter - 3, _MIN_COLUMNS)
    share = math.ceil(len(dots) / available)
    columns = [dots[first : first + share] for first in range(0, len(dots), share)]
    gap = " " * (2 * len(columns) <= available)

    def axis(label: str, cells: Iterable[Span]) -> Line:
        text = fill(cut(label, gutter), gutter, right=True)
        spans = [(f"{sign}{gap}", markup) for sign, markup in cells]
        return line_of([(f"{text} │ ", PLAIN), *spans])

    for row in reversed(range(_ROWS)):
        yield axis(labels.get(row, ""), [_cell(dots, row, scale) for dots in columns])
    for flag in flags:
        raised = [any(flag in dot.flags for dot in dots) for dots in columns]
        yield axis(printable(flag), [(_RAISED if here else " ", CAUTION) for here in raised])
    last = f"{len(dots)}".rjust((len(columns) - 1) * (1 + len(gap)))
    numbers = f"1{last if len(last) > 1 else f' {last}'}" if len(dots) > 1 else "1"
    yield ((f"{fill(noun, gutter, right=True)}   {numbers}", PLAIN),)
    for text in scale.outside(dots, noun, unit):
        yield from marked(wrapped(text, total), CAUTION)


@dataclass(frozen=True, kw_only=True)
class _Scale:
    """Mapping of values to rows, from `low` to `extent` above it."""

    low: float
    extent: float

    @classmethod
    def of(cls, dots: Sequence[Dot]) -> _Scale:
        signs = {dot.sign for dot in dots}
        medians = [median(dot.value for dot in dots if dot.sign == sign) for sign in signs]
        least, most = min(medians) / _FAR, max(medians) * _FAR
        in_range = [dot.value for dot in dots if least <= dot.value and not 0 < most < dot.value]
        lowest, highest = min(in_range), max(in_range)
        extent = max(highest - lowest, abs(highest) * LEAST_EXTENT) or 1.0
        return cls(low=(lowest + highest - extent) / 2, extent=extent)

    def at(self, row: int) -> float:
        """Value at the middle of a row."""
        return self.low + self.extent * row / (_ROWS - 1)

    def row(self, value: float) -> int:
        """Row of a value, or the one below or above the plot."""
        return min(max(round((value - self.low) / self.extent * (_ROWS - 1)), -1), _ROWS)

    def outside(self, dots: Sequence[Dot], noun: str, unit: str) -> Iterator[str]:
        """Notes on out-of-range dots."""
        for sign, row, place, extreme in (
            (_ABOVE, _ROWS, "above the plot, up to", max),
            (_BELOW, -1, "below the plot, down to", min),
        ):
            if values := [dot.value for dot in dots if self.row(dot.value) == row]:
                end = number(extreme(values), unit)
                yield f"{sign} {counted(len(values), noun)} {place} {end}"


def _cell(dots: Sequence[Dot], row: int, scale: _Scale) -> Span:
    """Cell of a column's dots in a row; out-of-range values are arrows at the edge."""
    dots_here = [dot for dot in dots if min(max(scale.row(dot.value), 0), _ROWS - 1) == row]
    if not dots_here:
        return " ", PLAIN
    dot = dots_here[-1]
    arrow = {_ROWS: _ABOVE, -1: _BELOW}.get(scale.row(dot.value))
    return arrow or dot.sign, _MARKUP[dot.sign]
