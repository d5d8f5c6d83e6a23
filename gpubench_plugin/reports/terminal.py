"""The header and the summary of a session, as text with markup."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from gpubench_plugin.environment import percentage
from gpubench_plugin.quality_flags import doubtful_flags, other_flags
from gpubench_plugin.records import OUTCOMES, Measurement, Outcome
from gpubench_plugin.reports import text as cells
from gpubench_plugin.reports.columns import fitting_columns, half_width
from gpubench_plugin.reports.markup import BAD, BOLD, DOUBTFUL, GOOD, PLAIN, Line, Markup, Span
from gpubench_plugin.reports.table import GAP, Column, names_column, table, wrapped
from gpubench_plugin.reports.text import UNICODE, Glyphs, cut, printable, shorten

_COLOURS: Final[Mapping[Outcome, Markup]] = {
    "measured": GOOD,
    "skipped": DOUBTFUL,
    "unsupported": DOUBTFUL,
    "not_measured": DOUBTFUL,
}
"""Any other outcome is bad."""

_NOTABLE_LAG: Final = 0.05
"""Lag of the slowest rank that is reported: above the noise between ranks; not measured."""

_BOUNDS: Final = {
    "memory": "one sample more does not fit into memory",
    "data": "an epoch of the data has no more samples",
    "largest": "no larger one is tried",
}
"""What bounds a fitted batch size."""


def header_lines(
    *,
    device: str,
    precision: Sequence[str],
    world_sizes: Sequence[int],
    preset: str,
    run_directory: Path | str,
    width: int,
) -> list[str]:
    """Header lines: device, precision, world size, preset, run directory.

    Without a device (nothing is measured) only the run directory, which is never wrapped, for
    copying.
    """
    facts = {
        "device": device,
        "precision": ",".join(precision),
        "world size": ",".join(map(str, sorted(world_sizes))),
        "preset": preset,
    }
    line = "gpubench: " + "; ".join(f"{name} {fact}" for name, fact in facts.items() if fact)
    return [
        *(wrapped(line, width, hanging=" " * len("gpubench: ")) if device else []),
        f"results: {printable(str(run_directory))}",
    ]


def summary_lines(
    measurements: Sequence[Measurement], width: int, glyphs: Glyphs = UNICODE
) -> list[Line]:
    """Table of all benchmarks, reasons for unmeasured ones, and outcome counts.

    Where `width` columns do not suffice, the outcome moves into the step's column, notes and doubts
    move below the table, long names lose their middle, and FLOP/s, MFU, memory and throughput are
    left out; the run directory has them.
    """
    if not measurements:
        return [(("nothing was measured", DOUBTFUL),)]
    grouped = _by_file(measurements)
    names = _labels(grouped)
    name_width = max(map(cells.width, names)) + len(GAP)
    columns = fitting_columns(grouped, width, name_width, glyphs)
    benchmark = names_column(names, columns.values(), width, glyphs, indent=GAP)
    files = [cut(printable(_split(m.id)[0]), width, glyphs.ellipsis) for m in grouped]
    colored = [replace(c, markup=_markup(name, c, grouped)) for name, c in columns.items()]
    labels = [name.removeprefix(GAP) for name in benchmark.cells]
    return [
        *table([benchmark, *colored], glyphs, nothing=glyphs.nothing, groups=files),
        *_notes_below(grouped, labels, width, glyphs, columns),
        _counts(grouped),
    ]


def _by_file(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Group the benchmarks by file, keeping file order."""
    files = list(dict.fromkeys(_split(m.id)[0] for m in measurements))
    return sorted(measurements, key=lambda m: files.index(_split(m.id)[0]))


def _labels(measurements: Sequence[Measurement]) -> list[str]:
    """Names without ``test_``, and without common precision and world size (see the header)."""
    precisions = {m.params["precision"] for m in measurements if "precision" in m.params}
    world_sizes = {m.params.get("world_size") for m in measurements}
    precision = rf"(?:{re.escape(precisions.pop())}-)?" if len(precisions) == 1 else ""
    world_size = world_sizes.pop() if len(world_sizes) == 1 and not precisions else None
    common_suffix = re.compile(rf"(?<![^[-]){precision}ws{world_size}(?=[-\]])-?")
    labels = []
    for measurement in measurements:
        name = _split(measurement.id)[1].removeprefix("test_")
        if world_size:
            name = common_suffix.sub("", name).replace("-]", "]").removesuffix("[]")
        labels.append(printable(name))
    return labels


def _split(node_id: str) -> tuple[str, str]:
    """Split a node id into file and name."""
    file, separator, name = node_id.partition("::")
    return (file, name) if separator else ("", file)


def _markup(name: str, column: Column, measurements: Sequence[Measurement]) -> list[Markup]:
    """Markup of a column's cells: steps with an interval are bold, doubtful ones yellow."""
    return [
        _COLOURS.get(m.outcome, BAD) if cell == m.outcome else _markup_of(name, m)
        for cell, m in zip(column.cells, measurements, strict=True)
    ]


def _markup_of(name: str, measurement: Measurement) -> Markup:
    if name == "doubts" or (name == "step" and doubtful_flags(measurement.flags)):
        return DOUBTFUL
    has_interval = name == "step" and half_width(measurement, "step_time_s") is not None
    return BOLD if has_interval else PLAIN


def _notes_below(
    measurements: Sequence[Measurement],
    names: Sequence[str],
    width: int,
    glyphs: Glyphs,
    columns: Mapping[str, Column],
) -> Iterator[Line]:
    """Lines below the table: reasons, flags that have no column, lagging ranks, lapsed checks."""
    labels = shorten(names, width // 2, glyphs.ellipsis)
    for name, measurement in zip(labels, measurements, strict=True):
        reason = measurement.reason if measurement.outcome != "measured" else ""
        reason = reason.replace(f"{measurement.id}: ", "", 1)  # the line begins with its name
        doubts = [] if "doubts" in columns else doubtful_flags(measurement.flags)
        notes = [] if "notes" in columns else other_flags(measurement.flags)
        for note, markup in (
            (reason, DOUBTFUL),
            ("doubtful: " * bool(doubts) + ", ".join(doubts), DOUBTFUL),
            (", ".join(notes), PLAIN),
            (_slowest_rank_text(measurement), DOUBTFUL),
            (_fit_text(measurement), PLAIN),
            (str(measurement.correctness.get("loss_drop_lapsed", "")), PLAIN),
        ):
            if note:
                line = cut(f"{name}: {printable(note)}", width, glyphs.ellipsis)
                yield ((line, markup),)


def _fit_text(measurement: Measurement) -> str:
    """The batch size that was fitted, and what bounds it; empty if it was stated."""
    fit = measurement.correctness.get("batch_fit")
    return f"training.batch_size={fit['samples']} fitted: {_BOUNDS[fit['bound_by']]}" if fit else ""


def _slowest_rank_text(measurement: Measurement) -> str:
    """Slowest rank and its lag behind the fastest, if notable."""
    slowest = measurement.slowest_rank
    if slowest is None:
        return ""
    lag = slowest.median_s / min(rank.median_s for rank in measurement.ranks) - 1
    if lag < _NOTABLE_LAG:
        return ""
    is_multi_host = len({rank.host for rank in measurement.ranks}) > 1
    host_text = f" on {slowest.host}" if is_multi_host else ""
    return f"slowest rank {slowest.rank}{host_text}: +{percentage(lag)} over the fastest"


def _counts(measurements: Sequence[Measurement]) -> Line:
    counts = Counter(m.outcome for m in measurements)
    spans: list[Span] = [] if counts["measured"] else [("nothing was measured: ", DOUBTFUL)]
    separator = ""
    for outcome in filter(counts.get, OUTCOMES):
        spans.append((f"{separator}{counts[outcome]} {outcome}", _COLOURS.get(outcome, BAD)))
        separator = ", "
    return tuple(spans)
