"""Tables of plain text, fitted into a terminal, and the columns of a session's summary."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from gpubench_plugin.reports.text import (
    byte_size,
    count,
    cut,
    fill,
    percentage,
    printable,
    seconds,
    significant,
    width,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpubench_plugin.records import Measurement
    from gpubench_plugin.reports.text import Glyphs


_RATES: Final[Mapping[str, Callable[[float], str]]] = {
    "busbw_bytes_per_s": lambda rate: f"{significant(rate / 1e9)} GB/s busbw",
    "samples_per_s": lambda rate: f"{count(rate)} samples/s",
    "tokens_per_s": lambda rate: f"{count(rate)} tokens/s",
    "bytes_per_s": lambda rate: f"{byte_size(rate)}/s",
}
"""Metrics of throughput, the most telling first. None is derived from the step's time."""
_TITLES: Final = ("samples/s", "tokens/s", "GB/s busbw")
"""Units that do not depend on the number before them."""

GAP: Final = "  "

_FOLDED: Final = ("outcome", "flags")
"""These fold into another place, so they go before any name is shortened."""
_LEFT_OUT: Final = ("tflops", "mfu", "memory", "throughput")
"""These are lost to the table, so they go, in this order, before names become too short."""
_LEAST_FOR_NAMES: Final = 30


@dataclass(frozen=True, kw_only=True)
class Column:
    """A title and one cell for each benchmark; an empty cell has nothing to say."""

    title: str
    cells: Sequence[str]
    numeric: bool = True

    @cached_property
    def width(self) -> int:
        """Columns of the terminal it takes."""
        return max(map(width, (self.title, *self.cells)))


def fitting(
    measurements: Sequence[Measurement], total: int, for_names: int, glyphs: Glyphs
) -> dict[str, Column]:
    """By name and in order, the columns that have something to say and fit into `total`.

    `for_names` is what the column with the benchmarks' names would like to have of it. Where the
    outcome has no room, it stands in the step's column, which is empty where nothing was
    measured; flags and numbers without room are missing from the result.
    """
    columns = _all(measurements, glyphs)
    least = min(for_names, max(_LEAST_FOR_NAMES, total // 3))
    for name in (*_FOLDED, *_LEFT_OUT):
        wanted = for_names if name in _FOLDED else least
        if wanted + sum(len(GAP) + column.width for column in columns.values()) <= total:
            break
        dropped = columns.pop(name, None)
        if dropped is not None and name == "outcome":
            columns = _with_outcome_folded(columns, measurements)
    return columns


def _all(measurements: Sequence[Measurement], glyphs: Glyphs) -> dict[str, Column]:
    columns = {
        "outcome": Column(title="outcome", cells=[m.outcome for m in measurements], numeric=False),
        "step": Column(title="step", cells=[step(m, glyphs) for m in measurements]),
        "throughput": throughputs(measurements),
        "tflops": _metric(measurements, "TFLOP/s", "tflops", _three_digits),
        "mfu": _metric(measurements, "MFU", "mfu", lambda share: percentage(share, 3)),
        "memory": _metric(measurements, "memory", "peak_memory_bytes", byte_size),
        "flags": Column(title="flags", cells=[_flags(m) for m in measurements], numeric=False),
    }
    return {name: column for name, column in columns.items() if any(column.cells)}


def _with_outcome_folded(
    columns: Mapping[str, Column], measurements: Sequence[Measurement]
) -> dict[str, Column]:
    steps = columns["step"].cells if "step" in columns else [""] * len(measurements)
    cells = [shown or m.outcome for shown, m in zip(steps, measurements, strict=True)]
    others = {name: column for name, column in columns.items() if name != "step"}
    return {"step": Column(title="step", cells=cells), **others}


def throughputs(measurements: Sequence[Measurement]) -> Column:
    """Work per second; where all cells have one unit, it moves into the title."""
    cells = [_throughput(m) for m in measurements]
    named = {cell.partition(" ")[2] for cell in cells if cell}
    if len(named) == 1 and (unit := named.pop()) in _TITLES:
        return Column(title=unit, cells=[cell.partition(" ")[0] for cell in cells])
    return Column(title="throughput", cells=cells)


def _metric(
    measurements: Sequence[Measurement], title: str, name: str, show: Callable[[float], str]
) -> Column:
    return Column(title=title, cells=[_shown(m, name, show) for m in measurements])


def _three_digits(value: float) -> str:
    return significant(value, 3)


def _flags(measurement: Measurement) -> str:
    return printable(", ".join(measurement.flags))


def _shown(measurement: Measurement, name: str, show: Callable[[float], str]) -> str:
    metric = measurement.metrics.get(name)
    return "" if metric is None else show(metric.value)


def step(measurement: Measurement, glyphs: Glyphs) -> str:
    """The median step with the half-width of its interval: ``18.42 ms ±0.54%``."""
    metrics = measurement.metrics
    median = metrics.get("step_time_s")
    if median is None:
        return ""
    low, high = metrics.get("step_time_ci_low_s"), metrics.get("step_time_ci_high_s")
    shown = seconds(median.value, glyphs)
    if low is None or high is None or median.value == 0:
        return shown
    half_width = (high.value - low.value) / 2 / median.value
    return f"{shown} {glyphs.plus_minus}{percentage(half_width)}"


def _throughput(measurement: Measurement) -> str:
    shown = (_shown(measurement, name, show) for name, show in _RATES.items())
    return next((cell for cell in shown if cell), "")


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
