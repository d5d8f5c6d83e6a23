"""The verdicts of a comparison as a table for a terminal, with the markup of pytest's writer.

Nothing here writes; see :mod:`gpubench_plugin.reports.terminal`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from gpubench_plugin.reports.glyphs import UNICODE
from gpubench_plugin.reports.headline import headline, words
from gpubench_plugin.reports.table import GAP, Column
from gpubench_plugin.reports.text import cut, fill, no_command, printable, shorten
from gpubench_plugin.reports.text import width as columns_of
from gpubench_plugin.reports.verdict_cells import (
    changed,
    difference_text,
    reasons,
    row,
    title,
    worst_first,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpubench_plugin.reports.glyphs import Glyphs
    from gpubench_plugin.reports.terminal import Line
    from gpubench_plugin.reports.verdict_cells import Row
    from gpubench_plugin.verdicts import Comparison, Verdict, VerdictKind

_PLAIN: Final[Mapping[str, bool]] = {}
_BOLD: Final = {"bold": True}
_GOOD: Final = {"green": True}
_DOUBTFUL: Final = {"yellow": True}
_BAD: Final = {"red": True}
_COLOURS: Final[Mapping[VerdictKind, Mapping[str, bool]]] = {
    "regressed": _BAD,
    "errored": _BAD,
    "improved": _GOOD,
    "unchanged": _PLAIN,
}
"""Any other verdict is doubtful."""

_LEFT_OUT: Final = ("launches", "interval", "base", "head", "metric")
"""Columns that give way, in this order, before names become too short."""
_LEAST_FOR_NAMES: Final = 20
_NAMED: Final = 3
"""Benchmarks that a shared reason names."""
_DIFFERENCES: Final = 8
"""Differences of the environment that are listed."""


def verdict_lines(
    comparison: Comparison,
    width: int,
    glyphs: Glyphs = UNICODE,
    *,
    only_changed: bool = False,
) -> list[Line]:
    """Which is compared with which, the notes, one row per verdict, why, and the counts.

    With `only_changed`, rows of what is unchanged are left out; the counts are of all.
    """
    shown = worst_first(comparison.verdicts)
    shown = changed(shown) if only_changed else shown
    return [
        ((_escaped(title(comparison, glyphs), width, glyphs), _BOLD),),
        *_notes(comparison, width),
        *_table(shown, width, glyphs),
        *_why(shown, width, glyphs),
        *_environment(comparison, width, glyphs),
        *_counts(comparison.verdicts, width, glyphs),
    ]


def _table(verdicts: Sequence[Verdict], width: int, glyphs: Glyphs) -> Iterator[Line]:
    if not verdicts:
        return
    rows = [row(verdict, words(verdict), glyphs) for verdict in verdicts]
    names = _names(rows)
    columns = _fitting(rows, names, width)
    room = width - sum(len(GAP) + column.width for column in columns.values())
    longest = max(map(columns_of, (*names, "benchmark")))
    room = min(max(room, len("benchmark")), longest)
    shown = shorten(names, room, glyphs.ellipsis)
    yield ((_joined("benchmark", room, [c.title for c in columns.values()], columns), _BOLD),)
    for place, verdict in enumerate(verdicts):
        cells = [c.cells[place] or glyphs.nothing * c.numeric for c in columns.values()]
        text = _joined(shown[place], room, cells, columns)
        said = cells[-1]
        yield ((text.removesuffix(said), _PLAIN), (said, _colour(verdict)))


def _names(rows: Sequence[Row]) -> list[str]:
    """The node ids, without the file where all are in one."""
    files = {row.benchmark.partition("::")[0] for row in rows}
    ids = [row.benchmark for row in rows]
    if len(files) == 1:
        ids = [node_id.partition("::")[2] or node_id for node_id in ids]
    return [printable(node_id) for node_id in ids]


def _fitting(rows: Sequence[Row], names: Sequence[str], width: int) -> dict[str, Column]:
    numeric = ("base", "head", "effect", "interval", "launches")
    cells = {
        name: [printable(getattr(row, name)) for row in rows]
        for name in ("metric", *numeric, "verdict")
    }
    columns = {
        name: Column(title=name, cells=column, numeric=name in numeric)
        for name, column in cells.items()
        if any(column)
    }
    least = min(max(map(columns_of, names)), max(_LEAST_FOR_NAMES, width // 4))
    for name in _LEFT_OUT:
        if least + sum(len(GAP) + column.width for column in columns.values()) <= width:
            break
        if name != "metric" or len(set(cells["metric"])) == 1:  # else it tells rows apart
            columns.pop(name, None)
    return columns


def _joined(name: str, room: int, cells: Sequence[str], columns: Mapping[str, Column]) -> str:
    filled = (
        fill(cell, column.width, right=column.numeric)
        for cell, column in zip(cells, columns.values(), strict=True)
    )
    return GAP.join((fill(name, room), *filled)).rstrip()


def _why(verdicts: Sequence[Verdict], width: int, glyphs: Glyphs) -> Iterator[Line]:
    names = _names([row(verdict, "", glyphs) for verdict in verdicts])
    called = [
        f"{name} {verdict.metric}".strip() for name, verdict in zip(names, verdicts, strict=True)
    ]
    for verdict, those, reason in reasons(verdicts, called):
        more = f" and {len(those) - _NAMED} more" if len(those) > _NAMED else ""
        who = ", ".join(
            printable(name) for name in shorten(those[:_NAMED], width // 2, glyphs.ellipsis)
        )
        for line in _indented(f"{who}{more}: {printable(reason)}", width):
            yield ((line, _colour(verdict)),)


def _indented(text: str, width: int) -> list[str]:
    """The lines of `text`, all but the first indented."""
    room = max(width, 20)
    lines = textwrap.wrap(text, room, subsequent_indent="  ", break_on_hyphens=False) or [text]
    return [no_command(line) for line in lines]


def _notes(comparison: Comparison, width: int) -> Iterator[Line]:
    for note in comparison.notes:
        yield from (((line, _DOUBTFUL),) for line in _indented(printable(note), width))


def _counts(verdicts: Sequence[Verdict], width: int, glyphs: Glyphs) -> Iterator[Line]:
    colour = _colour_of_all(verdicts)
    yield from (((line, colour),) for line in _indented(headline(verdicts, glyphs), width))


def _environment(comparison: Comparison, width: int, glyphs: Glyphs) -> Iterator[Line]:
    differences = comparison.environment_differences
    if not differences:
        return
    yield (("differences of the environment:", _BOLD),)
    for difference in differences[:_DIFFERENCES]:
        yield ((_escaped(f"  {difference_text(difference, glyphs)}", width, glyphs), _PLAIN),)
    if len(differences) > _DIFFERENCES:
        more = len(differences) - _DIFFERENCES
        yield ((f"  and {more} more; --format=json lists all", _PLAIN),)


def _escaped(text: str, width: int, glyphs: Glyphs) -> str:
    indent = len(text) - len(text.lstrip())
    return cut(" " * indent + printable(text), width, glyphs.ellipsis)


def _colour(verdict: Verdict) -> Mapping[str, bool]:
    return _COLOURS.get(verdict.kind, _DOUBTFUL)


def _colour_of_all(verdicts: Sequence[Verdict]) -> Mapping[str, bool]:
    kinds = {verdict.kind for verdict in verdicts}
    if kinds & {"regressed", "errored"}:
        return _BAD
    return _GOOD if kinds and kinds <= {"improved", "unchanged"} else _DOUBTFUL
