"""The header and the summary of a session: its table, as far as it fits, and lines below it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import filterfalse
from pathlib import Path
from typing import Final

from gpubench_plugin.config.settings import AUTO_TABLE, BY_FILE, BY_FUNCTION, TableOptions
from gpubench_plugin.core.errors import CERTAIN, alike, invalid_choice, suggest
from gpubench_plugin.core.quality_flags import doubtful_flags
from gpubench_plugin.core.records import OUTCOMES, Measurement, Outcome
from gpubench_plugin.reports.columns import (
    METRIC_COLUMNS,
    METRIC_OF,
    half_width,
    metric_text,
    named_columns,
    own_metrics,
)
from gpubench_plugin.reports.markup import BAD, BOLD, CAUTION, GOOD, PLAIN, Line, Markup, Span
from gpubench_plugin.reports.names import screen_names
from gpubench_plugin.reports.remarks import NOT_IN_TABLE, Remarks, operator_lines
from gpubench_plugin.reports.side_by_side import scaling_lines, side_by_side_lines, variant_lines
from gpubench_plugin.reports.table import GAP, Column, column, narrowed, paragraph, table, wrapped
from gpubench_plugin.reports.text import NOTHING, cut, printable
from gpubench_plugin.reports.verdicts import kind_text

_COLOURS: Final[Mapping[Outcome, Markup]] = {
    "measured": GOOD,
    "skipped": CAUTION,
    "unsupported": CAUTION,
    "not_measured": CAUTION,
}
"""Any other outcome is bad."""
# Columns whose contents stand below the table where they do not fit.
_FOLDED: Final = ("notes", "doubts")
# Columns left out, in this order, where they do not fit either.
_LEFT_OUT: Final = (*(name for name in METRIC_COLUMNS if name != "throughput"), "throughput")


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


def closing_lines(
    measurements: Sequence[Measurement], width: int, options: TableOptions = AUTO_TABLE
) -> list[Line]:
    """All that a session ends with: the summary, operators, scaling, and what was compared."""
    lines = summary_lines(measurements, width, options)
    parts = (operator_lines, scaling_lines, side_by_side_lines, variant_lines)
    for part in parts if options.shown else ():
        if part_lines := part(measurements, width):
            lines += [(), *part_lines]
    return lines


def summary_lines(
    measurements: Sequence[Measurement], width: int, options: TableOptions = AUTO_TABLE
) -> list[Line]:
    """Table of measured and failed benchmarks, remarks, unmeasured ones, and outcome counts.

    Where `width` columns do not suffice, notes and doubts move below the table, and so do metrics
    that tests have added; FLOP/s, MFU, memory and throughput are left out: the run directory has
    them.
    """
    if not measurements:
        return [(("nothing was measured", CAUTION),)]
    if not options.shown:
        return [_counts(measurements)]
    names = screen_names((m.id for m in measurements), width)
    rows = [m for m in measurements if m.outcome not in NOT_IN_TABLE]
    remarks = Remarks(measurements, names, width)
    results = _result_lines(rows, remarks, options) if rows else ()
    return [*results, *remarks.left_out(), _counts(measurements)]


def _counts(measurements: Sequence[Measurement]) -> Line:
    counts = Counter(m.outcome for m in measurements)
    spans: list[Span] = [] if counts["measured"] else [("nothing was measured: ", CAUTION)]
    separator = ""
    for outcome in filter(counts.get, OUTCOMES):
        spans.append(
            (f"{separator}{counts[outcome]} {kind_text(outcome)}", _COLOURS.get(outcome, BAD))
        )
        separator = ", "
    return tuple(spans)


def _result_lines(
    measurements: Sequence[Measurement], remarks: Remarks, options: TableOptions
) -> Iterator[Line]:
    """Table of `measurements`, options that fit none of them, and the `remarks`.

    Below it are also metrics without a column, since it did not fit, or since a column of ours has
    their name.
    """
    names, total = remarks.names, remarks.width
    stated = options
    groupings = {BY_FILE, BY_FUNCTION, "none"} | {n for m in measurements for n in m.params}
    if options.group_by not in groupings:
        options = replace(options, group_by=BY_FILE)
    rows, groups = _grouped(_sorted(measurements, options, names), options)
    indent = GAP if any(groups) else ""
    benchmark = Column(title="benchmark", cells=[indent + names[row.id] for row in rows])
    candidates = _columns(rows, groups, options)
    missing = [n for n in options.columns if n not in candidates and n not in _FOLDED]
    if missing and not candidates:
        options = replace(options, columns=())
        candidates = _columns(rows, groups, options)
    metrics = [name for name in candidates if _is_metric(name)]
    give_way = [*_FOLDED, *reversed(metrics), *_LEFT_OUT]
    if options.columns:
        give_way = [*reversed(candidates)]
    columns = narrowed(candidates, give_way, total - benchmark.width)
    hidden = [name for name in metrics if name not in columns]
    homonyms = [] if options.columns else filterfalse(_is_metric, own_metrics(rows))
    marked_columns = [
        replace(c, markup=[*map(partial(_markup, name), rows, c.cells)])
        for name, c in _with_outcomes(columns, rows).items()
    ]
    titles = [cut(printable(group), total) for group in groups]
    yield from table([benchmark, *marked_columns], nothing=NOTHING, groups=titles)
    for text in _problems(measurements, stated, missing, groupings):
        yield from paragraph(text, total, CAUTION)
    yield from remarks.failures()
    yield from remarks.doubts(columns)
    yield from remarks.notes(columns)
    yield from remarks.metrics([*hidden, *homonyms])


def _columns(
    rows: Sequence[Measurement], groups: Sequence[str], options: TableOptions
) -> dict[str, Column]:
    """The columns to show, where there is room: those chosen, or those that have a value."""
    shown = list(options.columns)
    if not shown and options.group_by == BY_FILE:  # tests in a file are no alternatives
        groups = [row.group or row.id for row in rows]
    by_name = named_columns(rows, groups)
    if not shown:
        shown = [name for name in by_name if name != "outcome"]
        shown[-2:-2] = filter(_is_metric, own_metrics(rows))
    for name in shown:
        if name not in by_name:
            texts = [metric_text(m, name) for m in rows]
            by_name[name] = column(printable(name), texts, numeric=True)
    return {name: by_name[name] for name in shown if any(by_name[name].cells)}


def _is_metric(name: str) -> bool:
    return name not in METRIC_OF and name not in {"outcome", *_FOLDED}


def _with_outcomes(
    columns: Mapping[str, Column], rows: Sequence[Measurement]
) -> Mapping[str, Column]:
    """Put the outcome of what has no numbers into the first column."""
    outcomes = [kind_text(row.outcome) for row in rows]
    if not columns:
        return {"outcome": Column(title="outcome", cells=outcomes)}
    first, first_column = next(iter(columns.items()))
    cells = [
        cell if row.outcome == "measured" else outcome
        for row, cell, outcome in zip(rows, first_column.cells, outcomes, strict=True)
    ]
    return {**columns, first: replace(first_column, cells=cells)}


def _sorted(
    measurements: Sequence[Measurement], options: TableOptions, names: Mapping[str, str]
) -> list[Measurement]:
    """The measurements by the sort key, those without it last."""
    if not options.sort:
        return list(measurements)
    if options.sort == "name":
        return sorted(measurements, key=lambda m: names[m.id], reverse=options.descending)
    candidates = METRIC_OF.get(options.sort, (options.sort,))

    sign = -1 if options.descending else 1

    def key(measurement: Measurement) -> float:
        values = (measurement.metrics[n].value for n in candidates if n in measurement.metrics)
        return next((sign * value for value in values), math.inf)

    return sorted(measurements, key=key)


def _grouped(
    measurements: Sequence[Measurement], options: TableOptions
) -> tuple[list[Measurement], list[str]]:
    """The rows, those of a group together, and the title of each one's group."""
    titles = {m.id: _group(m, options.group_by) for m in measurements}
    order = list(dict.fromkeys(titles.values()))
    rows = sorted(measurements, key=lambda m: order.index(titles[m.id]))
    return rows, [titles[row.id] for row in rows]


def _group(measurement: Measurement, key: str) -> str:
    file, separator, name = measurement.id.partition("::")
    if key == BY_FILE:
        return measurement.group or (file if separator else "")
    if key == BY_FUNCTION:
        return name.partition("[")[0]
    if key == "none":
        return ""
    return f"{key}={measurement.params[key]}" if key in measurement.params else f"without {key}"


def _problems(
    measurements: Sequence[Measurement],
    options: TableOptions,
    missing: Iterable[str],
    groupings: Collection[str],
) -> Iterator[str]:
    """What the options show, sort and group by that no benchmark has; nearest names."""
    from gpubench_plugin.measure.metrics._all import is_built_in

    metrics = {name for m in measurements for name in m.metrics}
    columns = {name for name, shown in METRIC_OF.items() if not metrics.isdisjoint(shown)}
    sort_keys = {"", "name"} | columns | metrics
    problems = [("--table", name, columns | metrics | {*_FOLDED, "outcome"}) for name in missing]
    problems += [("--table-sort", options.sort, sort_keys)] * (options.sort not in sort_keys)
    if options.group_by not in groupings:
        problems.append(("--table-group-by", options.group_by, {*groupings}))
    for flag, name, known in problems:
        is_misspelt = name not in METRIC_OF and not is_built_in(name)
        suggestion = suggest(name, sorted(known)) if is_misspelt else ""
        yield f"{flag}: no benchmark has {name!r}{suggestion}"


def check_columns(options: TableOptions) -> None:
    """Refuse what is nearly a column's name; another one may be a metric that a test adds.

    Raises:
        UsageProblem: naming the option, the word and the columns.
    """
    from gpubench_plugin.measure.metrics._all import is_built_in

    columns = (*METRIC_OF, "outcome", *_FOLDED)
    stated = [("--table", name, columns) for name in options.columns]
    for flag, name, known in (*stated, ("--table-sort", options.sort, ("name", *columns))):
        is_known = name in known or not name.isalpha() or is_built_in(name)
        if not is_known and alike(name, known, cutoff=CERTAIN):
            raise invalid_choice(flag, name, (*known, "the name of a metric"))


def _markup(name: str, row: Measurement, cell: str) -> Markup:
    """Steps with an interval are bold, doubts yellow, outcomes of failures red."""
    if row.outcome != "measured":
        return BAD if cell == kind_text(row.outcome) else PLAIN
    if name == "doubts" or (name == "step" and doubtful_flags(row.flags)):
        return CAUTION
    has_interval = name == "step" and half_width(row, "step_time_s") is not None
    return BOLD if has_interval else PLAIN
