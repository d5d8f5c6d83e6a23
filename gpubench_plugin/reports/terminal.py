"""The header and the summary of a session, as text with markup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from gpubench_plugin.config.settings import AUTO_TABLE, TableOptions
from gpubench_plugin.core.records import OUTCOMES, Measurement, Outcome
from gpubench_plugin.reports.columns import outcome_text
from gpubench_plugin.reports.markup import BAD, CAUTION, GOOD, Line, Markup, Span, marked
from gpubench_plugin.reports.names import screen_names
from gpubench_plugin.reports.remarks import NOT_IN_TABLE, Remarks, operator_lines
from gpubench_plugin.reports.result_table import ResultTable
from gpubench_plugin.reports.side_by_side import scaling_lines, side_by_side_lines, variant_lines
from gpubench_plugin.reports.table import wrapped
from gpubench_plugin.reports.text import UNICODE, Glyphs, printable

_COLOURS: Final[Mapping[Outcome, Markup]] = {
    "measured": GOOD,
    "skipped": CAUTION,
    "unsupported": CAUTION,
    "not_measured": CAUTION,
}
"""Any other outcome is bad."""


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
    measurements: Sequence[Measurement],
    width: int,
    glyphs: Glyphs = UNICODE,
    options: TableOptions = AUTO_TABLE,
) -> list[Line]:
    """All that a session ends with: the summary, operators, scaling, and what was compared."""
    lines = summary_lines(measurements, width, glyphs, options)
    if not options.shown:
        return lines
    for part in (operator_lines, scaling_lines, side_by_side_lines, variant_lines):
        if part_lines := part(measurements, width, glyphs):
            lines += [(), *part_lines]
    return lines


def summary_lines(
    measurements: Sequence[Measurement],
    width: int,
    glyphs: Glyphs = UNICODE,
    options: TableOptions = AUTO_TABLE,
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
    names = screen_names((m.id for m in measurements), width, glyphs)
    rows = [m for m in measurements if m.outcome not in NOT_IN_TABLE]
    remarks = Remarks(measurements, names, width, glyphs)
    lines: list[Line] = []
    if rows:
        result_table = ResultTable.fit(rows, names, width, glyphs, options)
        shown = result_table.columns
        lines += [
            *result_table.lines(width, glyphs),
            *marked(
                (part for text in result_table.problems for part in wrapped(text, width)), CAUTION
            ),
            *remarks.failures(),
            *remarks.doubts(shown),
            *remarks.notes(shown),
            *remarks.metrics(result_table.below),
        ]
    return [*lines, *remarks.left_out(), _counts(measurements)]


def _counts(measurements: Sequence[Measurement]) -> Line:
    counts = Counter(m.outcome for m in measurements)
    spans: list[Span] = [] if counts["measured"] else [("nothing was measured: ", CAUTION)]
    separator = ""
    for outcome in filter(counts.get, OUTCOMES):
        spans.append(
            (f"{separator}{counts[outcome]} {outcome_text(outcome)}", _COLOURS.get(outcome, BAD))
        )
        separator = ", "
    return tuple(spans)
