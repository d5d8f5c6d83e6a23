"""Curves of a run: tables with a sparkline for each."""

from __future__ import annotations

from itertools import groupby
from math import isfinite
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.reports.table import column, lines
from gpubench_plugin.reports.text import evenly_chosen, printable, sparkline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpubench_plugin.reports.text import Glyphs
    from gpubench_plugin.results.curves import Curve

_BARS: Final = 24  # of a sparkline: the rest of 80 columns is for names and numbers
# Events whose curves people read; JSON has those of single steps as well.
_SHOWN: Final = frozenset({"epoch", "log"})


def curve_lines(curves: Iterable[Curve], total: int, glyphs: Glyphs) -> Iterator[str]:
    """Tables of the `curves` of epochs and of ``gpubench.log``, at most `total` columns wide."""
    shown = [curve for curve in curves if curve.event in _SHOWN]
    for benchmark, group in groupby(shown, key=attrgetter("benchmark")):
        own = list(group)
        yield f"curves of {printable(benchmark)}"
        yield from lines(
            [
                column("event", [curve.event for curve in own]),
                column("curve", [curve.name for curve in own]),
                column("points", [len(curve.values) for curve in own], numeric=True),
                column("first", [f"{curve.values[0]:.4g}" for curve in own], numeric=True),
                column("last", [f"{curve.values[-1]:.4g}" for curve in own], numeric=True),
                column("shape", [_shape(curve, glyphs) for curve in own]),
            ],
            total,
            glyphs,
        )


def curves_as_json(curves: Iterable[Curve]) -> list[dict[str, Any]]:
    """The `curves` with all their points; a value that is not finite is null."""
    return [
        {**vars(curve), "values": [value if isfinite(value) else None for value in curve.values]}
        for curve in curves
    ]


def _shape(curve: Curve, glyphs: Glyphs) -> str:
    values = [value for value in curve.values if isfinite(value)]
    return sparkline(evenly_chosen(values, _BARS), glyphs)
