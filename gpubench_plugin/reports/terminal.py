"""The header and the summary of a session, as text with markup."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from gpubench_plugin.flags import doubts, notes
from gpubench_plugin.records import OUTCOMES, Measurement, Outcome
from gpubench_plugin.reports import text as cells
from gpubench_plugin.reports.columns import fitting, half_width
from gpubench_plugin.reports.markup import BAD, BOLD, DOUBTFUL, GOOD, PLAIN, Line, Markup, Span
from gpubench_plugin.reports.table import GAP, Column, names_column, table, wrapped
from gpubench_plugin.reports.text import UNICODE, Glyphs, cut, percentage, printable, shorten

_COLOURS: Final[Mapping[Outcome, Markup]] = {
    "measured": GOOD,
    "skipped": DOUBTFUL,
    "unsupported": DOUBTFUL,
    "not_measured": DOUBTFUL,
}
"""Any other outcome is bad."""


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
    line = "gpubench: " + "; ".join(f"{name} {fact}" for name, fact in known.items())
    return [
        *(wrapped(line, width, hanging=" " * len("gpubench: ")) if device else []),
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
    benchmark = names_column(names, chosen.values(), width, glyphs, indent=GAP)
    files = [cut(printable(_split(m.id)[0]), width, glyphs.ellipsis) for m in ordered]
    marked = [replace(c, markup=_markup(name, c, ordered)) for name, c in chosen.items()]
    shown = [name.removeprefix(GAP) for name in benchmark.cells]
    return [
        *table([benchmark, *marked], glyphs, nothing=glyphs.nothing, groups=files),
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


def _markup(name: str, column: Column, measurements: Sequence[Measurement]) -> list[Markup]:
    """The colours of the cells of a column: what is sure is bold, and what is in doubt yellow."""
    return [
        _COLOURS.get(m.outcome, BAD) if cell == m.outcome else _markup_of(name, m)
        for cell, m in zip(column.cells, measurements, strict=True)
    ]


def _markup_of(name: str, measurement: Measurement) -> Markup:
    if name == "doubts" or (name == "step" and doubts(measurement.flags)):
        return DOUBTFUL
    is_sure = name == "step" and half_width(measurement, "step_time_s") is not None
    return BOLD if is_sure else PLAIN


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
        spans.append((f"{separator}{number} {outcome}", _COLOURS.get(outcome, BAD)))
    return tuple(spans)
