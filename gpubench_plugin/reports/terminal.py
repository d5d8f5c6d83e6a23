"""The header and the summary of a session, as text with markup."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Final

from gpubench_plugin.flags import doubts, notes
from gpubench_plugin.records import OUTCOMES
from gpubench_plugin.reports import text as cells
from gpubench_plugin.reports.markup import BAD, BOLD, DOUBTFUL, GOOD, PLAIN
from gpubench_plugin.reports.table import GAP, Column, fitting, half_width
from gpubench_plugin.reports.text import (
    UNICODE,
    cut,
    fill,
    no_command,
    percentage,
    printable,
    shorten,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from gpubench_plugin.records import Measurement, Outcome
    from gpubench_plugin.reports.markup import Line, Markup, Span
    from gpubench_plugin.reports.text import Glyphs

_COLOURS: Final[Mapping[Outcome, Markup]] = {
    "measured": GOOD,
    "skipped": DOUBTFUL,
    "unsupported": DOUBTFUL,
    "not_measured": DOUBTFUL,
}
"""Any other outcome is bad."""
_MARKUP: Final[Mapping[str, Markup]] = {"step": BOLD, "doubts": DOUBTFUL}


_LAG_WORTH_SAYING: Final = 0.05


def header_lines(
    *,
    device: str,
    precision: Sequence[str],
    world_sizes: Sequence[int],
    preset: str,
    run_directory: Path | str,
    width: int,
) -> list[str]:
    """What stands above the session: device, precision, world, preset, run directory.

    Without a device only the last: nothing is measured by our rules. Wrapped to `width` columns,
    but for the run directory, which is there to be copied.
    """
    facts = {
        "device": device,
        "precision": ",".join(precision),
        "world size": ",".join(map(str, sorted(world_sizes))),
        "preset": preset,
    }
    known = {name: fact for name, fact in facts.items() if fact}
    line = "gpubench: " + "; ".join(f"{name} {printable(fact)}" for name, fact in known.items())
    wrapped = textwrap.wrap(line, width, subsequent_indent=" " * 10, break_on_hyphens=False)
    return [
        *(map(no_command, wrapped) if device else []),
        f"results: {printable(str(run_directory))}",
    ]


def summary_lines(
    measurements: Sequence[Measurement], width: int, glyphs: Glyphs = UNICODE
) -> list[Line]:
    """The table of all benchmarks, why some were not measured, and how many had which outcome.

    Where all does not fit into `width` columns, the outcome folds into the step's column, and notes
    and doubts fold below the table. Then long names lose their middle, and FLOP/s, MFU, memory
    and throughput give way; the run directory has them.
    """
    if not measurements:
        return [(("nothing was measured", DOUBTFUL),)]
    ordered = _by_file(measurements)
    names = _labels(ordered)
    longest = max(map(cells.width, names)) + len(GAP)
    chosen = fitting(ordered, width, longest, glyphs)
    room = width - sum(len(GAP) + column.width for column in chosen.values())
    shown = shorten(names, max(room, len("benchmark")) - len(GAP), glyphs.ellipsis)
    benchmark = Column(title="benchmark", cells=[GAP + name for name in shown], numeric=False)
    return [
        *_table(ordered, {"benchmark": benchmark, **chosen}, width, glyphs),
        *_beside(ordered, shown, width, glyphs, chosen),
        _counts(ordered),
    ]


def _by_file(measurements: Sequence[Measurement]) -> list[Measurement]:
    """The benchmarks of each file together, files in the order in which they came."""
    files = list(dict.fromkeys(_split(m.id)[0] for m in measurements))
    return sorted(measurements, key=lambda m: files.index(_split(m.id)[0]))


def _labels(measurements: Sequence[Measurement]) -> list[str]:
    """The names without ``test_``, and without precision and world size where all share them.

    Then the header says them.
    """
    precisions = {m.params["precision"] for m in measurements if "precision" in m.params}
    world_sizes = {m.params.get("world_size") for m in measurements}
    precision = rf"(?:{re.escape(precisions.pop())}-)?" if len(precisions) == 1 else ""
    world_size = world_sizes.pop() if len(world_sizes) == 1 and not precisions else None
    implied = re.compile(rf"(?<![^[-]){precision}ws{world_size}(?=[-\]])-?")
    labels = []
    for measurement in measurements:
        name = _split(measurement.id)[1].removeprefix("test_")
        if world_size:
            name = implied.sub("", name).replace("-]", "]").removesuffix("[]")
        labels.append(printable(name))
    return labels


def _split(node_id: str) -> tuple[str, str]:
    """File and name."""
    file, separator, name = node_id.partition("::")
    return (file, name) if separator else ("", file)


def _table(
    measurements: Sequence[Measurement],
    columns: Mapping[str, Column],
    width: int,
    glyphs: Glyphs,
) -> Iterator[Line]:
    """Titles, then the rows under the name of their file."""
    titles = (fill(c.title, c.width, right=c.numeric) for c in columns.values())
    yield ((GAP.join(titles).rstrip(), BOLD),)
    for file, rows in groupby(enumerate(measurements), key=lambda row: _split(row[1].id)[0]):
        if file:
            yield ((cut(printable(file), width, glyphs.ellipsis), PLAIN),)
        for number, measurement in rows:
            yield _row(number, measurement, columns, glyphs)


def _row(
    number: int, measurement: Measurement, columns: Mapping[str, Column], glyphs: Glyphs
) -> Line:
    spans: list[Span] = []
    for name, column in columns.items():
        cell = column.cells[number]
        shown = cell or (glyphs.nothing if column.numeric else "")
        text = fill(shown, column.width, right=column.numeric)
        markup = _MARKUP.get(name, PLAIN)
        if name == "step" and half_width(measurement, "step_time_s") is None:
            markup = PLAIN  # nobody knows how sure it is
        if name == "step" and doubts(measurement.flags):
            markup = DOUBTFUL
        if cell == measurement.outcome:
            markup = _colour(measurement.outcome)
        spans.append((GAP * bool(spans) + text, markup))
    text, markup = spans[-1]
    return (*spans[:-1], (text.rstrip(), markup))


def _beside(
    measurements: Sequence[Measurement],
    names: Sequence[str],
    width: int,
    glyphs: Glyphs,
    columns: Mapping[str, Column],
) -> Iterator[Line]:
    """A line for each thing a benchmark has to say beside its row.

    That is its reason, folded flags, a lag, and a check that lapsed. Doubts and notes are folded
    that have no column.
    """
    shortened = shorten(names, width // 2, glyphs.ellipsis)
    for name, measurement in zip(shortened, measurements, strict=True):
        reason = measurement.reason if measurement.outcome != "measured" else ""
        in_doubt = [] if "doubts" in columns else doubts(measurement.flags)
        folded = [] if "notes" in columns else notes(measurement.flags)
        for note, markup in (
            (reason, DOUBTFUL),
            ("in doubt: " * bool(in_doubt) + ", ".join(in_doubt), DOUBTFUL),
            (", ".join(folded), PLAIN),
            (_lag(measurement), DOUBTFUL),
            (str(measurement.correctness.get("loss_drop_lapsed", "")), PLAIN),
        ):
            if note:
                line = cut(f"{name}: {printable(note)}", width, glyphs.ellipsis)
                yield ((line, markup),)


def _lag(measurement: Measurement) -> str:
    """Which rank is how much slower than the fastest, where that is worth a look."""
    slowest = measurement.slowest_rank
    if slowest is None:
        return ""
    lag = slowest.median_s / min(rank.median_s for rank in measurement.ranks) - 1
    if lag < _LAG_WORTH_SAYING:
        return ""
    several = len({rank.host for rank in measurement.ranks}) > 1
    where = f" on {slowest.host}" if several else ""
    return f"slowest rank {slowest.rank}{where}: +{percentage(lag)} over the fastest"


def _counts(measurements: Sequence[Measurement]) -> Line:
    counts = Counter(m.outcome for m in measurements)
    counted = [(outcome, counts[outcome]) for outcome in OUTCOMES if counts[outcome]]
    spans: list[Span] = [] if counts["measured"] else [("nothing was measured: ", DOUBTFUL)]
    for outcome, number in counted:
        separator = ", " if outcome != counted[0][0] else ""
        spans.append((f"{separator}{number} {outcome}", _colour(outcome)))
    return tuple(spans)


def _colour(outcome: Outcome) -> Markup:
    return _COLOURS.get(outcome, BAD)
