"""Charts as data: a page's script draws them with uPlot, a template as SVG.

All series of a chart share its positions, as in uPlot's data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Numbers = tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class Series:
    """Values at the chart's positions, None where there is none.

    `low` and `high` are the ends of intervals, or empty. ``line`` passes over gaps and ``pairs``
    does not; ``dots`` are not joined; ``band`` has an interval alone. `role` decides the colour
    and the shape of dots; doubts are grey and hollow, those of a base or reference apart.
    """

    label: str
    style: Literal["line", "dots", "pairs", "band"] = "line"
    role: Literal["base", "head", "reference", "doubt", "base_doubt"] = "head"
    values: Numbers = ()
    low: Numbers = ()
    high: Numbers = ()


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Values in a `unit` over positions, which are numbers of a `noun`: run, round, rank, step.

    `names` are those of the positions, where numbers do not tell enough. `marks` are positions with
    a text: a vertical line each.
    """

    title: str
    unit: str
    noun: str
    positions: tuple[float, ...]
    series: tuple[Series, ...]
    names: tuple[str, ...] = ()
    marks: tuple[tuple[float, str], ...] = ()
