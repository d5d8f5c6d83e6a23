"""Charts as SVG: one document without scripts that needs nothing from elsewhere.

Series differ by shape and dashes, not by colour alone: ○ base, ● head, ◆ reference,
in doubt ◇ or, of a base or reference, □.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any, Final

from gpubench_plugin.core.format import listed, quantity, scale_of
from gpubench_plugin.reports.html.chart import Chart, Numbers, Series
from gpubench_plugin.reports.html.render import templates
from gpubench_plugin.reports.text import LEAST_EXTENT, cut, evenly_chosen, printable, shorten, width

_Point = tuple[float, float]

# Pixels. A character of a text is wider than most, so that none overlaps.
_WIDTH, _LEFT, _RIGHT, _PLOT, _ROW, _CHARACTER = 800, 90, 44, 200, 17, 6.5
_MOST_TICKS: Final = 6
# Columns of a title, and of the name of a position, a series or a mark.
_TITLE, _LABEL = 96, 60
# Positions up to which a dot tells its number to a pointer, and a line has dots.
_FEW: Final = 120
_DIAMOND: Final = "m0-4.5l4.5 4.5-4.5 4.5-4.5-4.5z"
_SHAPES: Final = {
    "base": "m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0",  # around a head's at the same place
    "head": "h0",  # the round end of a thick line
    "reference": _DIAMOND,
    "doubt": _DIAMOND,
    "base_doubt": "m-4-4h8v8h-8z",
}
_DASHES: Final = {"base": "6 3", "reference": "2 3"}
# Characters that `printable` leaves, but XML does not allow.
_NOT_XML: Final = re.compile("[\ufffe\uffff]")


def svg(charts: Sequence[Chart], title: str) -> str:
    """The `charts` below each other."""
    panels = [_panel(chart) for chart in charts]
    tops = [0, *accumulate(panel["bottom"] + 3 * _ROW for panel in panels)]
    template = templates().get_template("picture.svg.j2")
    return template.render(
        size=(_WIDTH, tops[-1]),
        ends=(_LEFT, _WIDTH - _RIGHT),
        title=_text(title, _TITLE),
        description=_text(". ".join(map(_described, charts)), 10_000),
        panels=zip(tops, panels, strict=False),
    )


def _panel(chart: Chart) -> dict[str, Any]:
    """What the template draws of a chart."""
    x = _Axis.of((*chart.positions, *(at for at, _ in chart.marks)), _LEFT, _WIDTH - _RIGHT)
    legend: float = 2 * _ROW + 4
    top = legend + _ROW * len(chart.series)
    marks = [*_marks(chart, x, top)]
    top = max([top, *(y + _ROW for _, y, *_ in marks)])
    numbers = [v for s in chart.series for v in (*s.values, *s.low, *s.high) if v is not None]
    y = _Axis.of(numbers, top + _PLOT, top)
    return {
        "title": _text(chart.title, _TITLE),
        "bottom": top + _PLOT,
        "noun": chart.noun,
        "marks": marks,
        "y_ticks": y.ticks(chart.unit) if numbers else [],
        "x_ticks": [*_position_ticks(chart, x)],
        "series": [
            {"at": (_LEFT, legend + _ROW * row), **_drawn(chart, series, x, y)}
            for row, series in enumerate(chart.series)
        ],
    }


@dataclass(frozen=True)
class _Axis:
    """Pixels of numbers."""

    low: float
    extent: float
    start: float
    end: float

    @classmethod
    def of(cls, numbers: Sequence[float], start: float, end: float) -> _Axis:
        """Axis with a margin."""
        low, high = min(numbers, default=0.0), max(numbers, default=0.0)
        extent = 1.1 * (max(high - low, abs(high) * LEAST_EXTENT) or 1.0)
        return cls((low + high - extent) / 2, extent, start, end)

    def at(self, number: float) -> float:
        share = (number - self.low) / self.extent
        return round(self.start + (self.end - self.start) * share, 1)

    def ticks(self, unit: str) -> list[tuple[float, str]]:
        """Round numbers with their places, all of them in the unit of the largest."""
        ends = self.low, self.low + self.extent
        factor, name = scale_of(max(map(abs, ends)), unit)
        numbers = _round_numbers(ends[0] / factor, ends[1] / factor)
        return [(self.at(number * factor), f"{number:.6g}{name}") for number in numbers]


def _round_numbers(low: float, high: float) -> list[float]:
    """Three to six of them, since no step is more than twice the one before."""
    power = 10.0 ** math.floor(math.log10((high - low) / _MOST_TICKS))
    steps = (power * number for number in (1, 2, 2.5, 5, 10, 20))
    step = next(s for s in steps if high // s + low // -s < _MOST_TICKS)
    return [step * multiple for multiple in range(math.ceil(low / step), int(high // step) + 1)]


def _position_ticks(chart: Chart, x: _Axis) -> Iterator[tuple[float, str]]:
    """Some of the positions; of pairs, their numbers."""
    names = dict(zip(chart.positions, chart.names, strict=False))
    shown = evenly_chosen(sorted({math.floor(at + 0.4) for at in chart.positions}), _MOST_TICKS)
    texts = [_text(names.get(at, "") or f"{at}", _TITLE) for at in shown]
    return zip(map(x.at, shown), shorten(texts, min(78 // max(len(shown), 1), 20)), strict=True)


def _marks(chart: Chart, x: _Axis, top: float) -> Iterator[tuple[float, float, str, bool]]:
    """Each mark with its text in the first row from `top` with room, and whether left of it."""
    ends: list[float] = []
    for at, text in sorted(chart.marks):
        line, label = x.at(at), _text(text, _LABEL)
        room = width(label) * _CHARACTER + 8
        is_left = line + room > _WIDTH
        start = line - room * is_left
        row = next((row for row, end in enumerate(ends) if end <= start), len(ends))
        ends[row : row + 1] = [start + room]
        yield line, top + _ROW * row, label, is_left


def _drawn(chart: Chart, series: Series, x: _Axis, y: _Axis) -> dict[str, Any]:
    """A series as paths, and dots with what a pointer is told."""

    def placed(numbers: Numbers) -> list[_Point | None]:
        pairs = zip(chart.positions, numbers, strict=False)
        return [None if number is None else (x.at(at), y.at(number)) for at, number in pairs]

    points, low, high = map(placed, (series.values, series.low, series.high))
    ends = [(a, b) for a, b in zip(low, high, strict=True) if a and b]
    names = chart.names or [f"{chart.noun} {at:g}" for at in chart.positions]
    is_few, style = len(points) <= _FEW, series.style
    dots = [
        (f"M{at[0]} {at[1]}{_SHAPES[series.role]}", f"{_text(name, _TITLE)}: {value}")
        for at, name, value in zip(points, names, _quantities(series, chart.unit), strict=False)
        if at and (style == "dots" or (style == "line" and is_few))
    ]
    line = _path(points, gaps=style == "pairs") * (style in {"line", "pairs"})
    bars = "".join(f"M{at} {start}V{end}" for (at, start), (_, end) in ends)
    is_band = style == "band"
    return {
        "label": _text(series.label, _LABEL),
        "role": series.role,
        "style": style,
        "dashes": _DASHES.get(series.role, "none") if style == "line" else "none",
        "shape": _SHAPES[series.role],
        "fill": "hollow" if series.role in {"base", "doubt", "base_doubt"} else "solid",
        "line": line if is_band else bars + line,
        "band": _path([*(a for a, _ in ends), *(b for _, b in reversed(ends))] * is_band),
        "dots": dots if is_few else [("".join(dot for dot, _ in dots), "")],
    }


def _quantities(series: Series, unit: str) -> Iterator[str]:
    return ("" if value is None else quantity(value, unit) for value in series.values)


def _path(points: Iterable[_Point | None], *, gaps: bool = False) -> str:
    """Line through the `points`: over the `gaps`, or not; of level parts, the ends."""
    parts = [[*filter(None, part)] for is_point, part in groupby(points, key=bool) if is_point]
    lines = parts if gaps else [[point for part in parts for point in part]]
    return "".join(
        f"{'L' if i else 'M'}{x} {y}"
        for line in lines
        for i, (x, y) in enumerate(line)
        if not (0 < i < len(line) - 1 and {line[i - 1][1], line[i + 1][1]} == {y})
    )


def _described(chart: Chart) -> str:
    """What a screen reader says of a chart."""
    texts = [*(series.label for series in chart.series), *(text for _, text in chart.marks)]
    return f"{chart.title}: {listed(texts, 20, '; ')}"


def _text(text: str, columns: int) -> str:
    return cut(_NOT_XML.sub("?", printable(text)), columns)
