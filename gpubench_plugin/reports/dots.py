"""Dots over time: values as a picture in text, the first one left, and their flags beneath."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

from gpubench_plugin.environment import counted
from gpubench_plugin.flags import doubts, notes
from gpubench_plugin.reports.markup import BOLD, DOUBTFUL, GOOD, PLAIN, Line, Markup, Span, line_of
from gpubench_plugin.reports.table import wrapped
from gpubench_plugin.reports.text import Glyphs, cut, fill, printable, width
from gpubench_plugin.reports.verdict_table import number

Sign = Literal["hollow", "filled", "diamond"]


@dataclass(frozen=True, kw_only=True)
class Dot:
    """One value: its sign says whose it is, its flags are marked beneath it."""

    value: float
    sign: Sign
    flags: tuple[str, ...] = ()


_ROWS: Final = 9
_LEAST_REACH: Final = 0.01
"""The picture reaches over 1 % at least, so that noise does not look like mountains."""
_FAR: Final = 3.0
"""Values so many times above or below the medians of all signs lie outside: others would look alike
beside them."""
_WIDE: Final = 5.0
"""Beyond this ratio of the greatest to the least value the scale is logarithmic."""
_LEAST_ROOM: Final = 8
_LONGEST_FLAG: Final = 16
_ABOVE, _BELOW, _RAISED = "^", "v", "!"

_MARKUP: Final[Mapping[Sign, Markup]] = {"hollow": PLAIN, "filled": BOLD, "diamond": GOOD}


def dot_lines(
    dots: Sequence[Dot], unit: str, noun: str, total: int, glyphs: Glyphs
) -> Iterator[Line]:
    """The picture of `dots`, one or more in the order of time, in `total` columns.

    Dots of both signs have a column each, and those that do not fit stand in further pictures on
    the same scale. If all have one sign, neighbours share a column instead. `noun` is what a dot
    is, in the singular.
    """
    scale = _Scale.of(dots)
    labels = {row: number(scale.at(row), unit, glyphs) for row in (0, _ROWS // 2, _ROWS - 1)}
    raised = {flag for dot in dots for flag in dot.flags}
    gutter = max(width(text) for text in (noun, *labels.values()))
    if raised and total >= 5 * _LONGEST_FLAG:
        gutter = max(gutter, min(max(map(width, map(printable, raised))), _LONGEST_FLAG))
    room = max(total - gutter - 3, _LEAST_ROOM)
    for first, columns in _panels(dots, room):
        step = 2 if 2 * len(columns) <= room else 1
        frame = _Frame(gutter=gutter, step=step, glyphs=glyphs)
        for row in reversed(range(_ROWS)):
            yield frame.line(labels.get(row, ""), [_cell(c, row, scale, glyphs) for c in columns])
        for flag in (*doubts(raised), *notes(sorted(raised))):
            cells = [any(flag in dot.flags for dot in column) for column in columns]
            if any(cells):
                marks = [(_RAISED if cell else " ", DOUBTFUL) for cell in cells]
                yield frame.line(printable(flag), marks)
        yield frame.ends(noun, first, first + sum(map(len, columns)) - 1, len(columns))
    for text in scale.outside(dots, noun, unit, glyphs):
        yield from (((line, DOUBTFUL),) for line in wrapped(text, total))


@dataclass(frozen=True, kw_only=True)
class _Scale:
    """Which row a value is in; `above` and `below` are those outside of it.

    `low` and `reach` are logarithms where the scale is logarithmic.
    """

    low: float
    reach: float
    logarithmic: bool
    above: frozenset[float]
    below: frozenset[float]

    @classmethod
    def of(cls, dots: Sequence[Dot]) -> _Scale:
        signs = {dot.sign for dot in dots}
        medians = [median(dot.value for dot in dots if dot.sign == sign) for sign in signs]
        values = [dot.value for dot in dots]
        above = frozenset(one for one in values if 0 < max(medians) * _FAR < one)
        below = frozenset(one for one in values if one < min(medians) / _FAR)
        near = [one for one in values if one not in above and one not in below]
        least, greatest = min(near), max(near)
        if logarithmic := 0 < least * _WIDE < greatest:
            least, greatest = math.log(least), math.log(greatest)
        reach = max(greatest - least, abs(greatest) * _LEAST_REACH) or 1.0
        return cls(
            low=(least + greatest - reach) / 2,
            reach=reach,
            logarithmic=logarithmic,
            above=above,
            below=below,
        )

    def at(self, row: int) -> float:
        """The value in the middle of a row."""
        place = self.low + self.reach * row / (_ROWS - 1)
        return math.exp(place) if self.logarithmic else place

    def row(self, value: float) -> int:
        """The row of a value, at the edge where it lies outside."""
        if self.logarithmic and value <= 0:
            return 0
        place = math.log(value) if self.logarithmic else value
        return min(max(round((place - self.low) / self.reach * (_ROWS - 1)), 0), _ROWS - 1)

    def outside(self, dots: Sequence[Dot], noun: str, unit: str, glyphs: Glyphs) -> Iterator[str]:
        """That the scale is no usual one, how many dots lie outside of it, and how far."""
        if self.logarithmic:
            yield "the scale is logarithmic"
        for sign, values, where, end in (
            (_ABOVE, self.above, "above", max(self.above, default=0.0)),
            (_BELOW, self.below, "below", min(self.below, default=0.0)),
        ):
            count = sum(dot.value in values for dot in dots)
            lie, until = "lie", "up to" if sign == _ABOVE else "down to"
            if count == 1:
                lie, until = "lies", "at"
            if count:
                place = f"{lie} {where} the picture, {until} {number(end, unit, glyphs)}"
                yield f"{sign} {counted(count, noun)} {place}"


_Column = tuple[Dot, ...]


def _panels(dots: Sequence[Dot], room: int) -> Iterator[tuple[int, list[_Column]]]:
    """The number of the first dot and the columns, of each picture."""
    if len({dot.sign for dot in dots}) == 1:
        share = math.ceil(len(dots) / room)
        yield 1, [tuple(dots[at : at + share]) for at in range(0, len(dots), share)]
        return
    for first in range(0, len(dots), room):
        yield first + 1, [(dot,) for dot in dots[first : first + room]]


def _cell(column: _Column, row: int, scale: _Scale, glyphs: Glyphs) -> Span:
    """What of a column is in that row; what lies outside is an arrow at the edge."""
    here = [dot for dot in column if scale.row(dot.value) == row]
    if not here:
        return " ", PLAIN
    dot = here[-1]
    sign = str(getattr(glyphs, dot.sign))
    sign = _ABOVE if dot.value in scale.above else _BELOW if dot.value in scale.below else sign
    return sign, _MARKUP[dot.sign]


@dataclass(frozen=True, kw_only=True)
class _Frame:
    gutter: int
    step: int
    glyphs: Glyphs

    def line(self, label: str, cells: Sequence[Span]) -> Line:
        """A label at the axis, then the cells; equal markup is one span."""
        shown = fill(cut(label, self.gutter, self.glyphs.ellipsis), self.gutter, right=True)
        spans: list[Span] = [(f"{shown} {self.glyphs.axis} ", PLAIN)]
        padded = [(text + " " * (self.step - 1), markup) for text, markup in cells]
        return line_of(spans + padded)

    def ends(self, noun: str, first: int, last: int, columns: int) -> Line:
        """The numbers of the first and the last dot, beneath them."""
        left, right = str(first), str(last)
        between = (columns - 1) * self.step + 1 - len(left) - len(right)
        numbers = left if first == last else f"{left}{' ' * max(between, 1)}{right}"
        return ((f"{fill(noun, self.gutter, right=True)}   {numbers}", PLAIN),)
