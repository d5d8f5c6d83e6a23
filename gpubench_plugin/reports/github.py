"""GitHub reports: job summary in markdown, and annotations.

Names and texts in them are escaped, since a pull request may choose them.
"""

# No ``from __future__ import annotations``: a function of this module has that name.

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from gpubench_plugin.core.format import counted
from gpubench_plugin.core.records import Comparison, Verdict, VerdictKind, VerdictPart
from gpubench_plugin.reports.text import printable
from gpubench_plugin.reports.verdict_rows import Row, rows_of
from gpubench_plugin.reports.verdict_table import head_labels
from gpubench_plugin.reports.verdicts import (
    change_text,
    changed,
    difference_text,
    headline,
    interval_text,
    kind_text,
    number,
    worst_first,
)

_MARKS: Final = {"regressed": "🔴", "errored": "💥", "improved": "🟢", "unchanged": "⚪"}
"""Marks beside the word, never instead of it; any other verdict is doubtful."""
_DOUBTFUL: Final = "🟡"

_MARKUP: Final = re.compile(r"[#$&*<>@\[\\\]_`|~]|:(?=/|\w+:)")
"""GitHub's markup, HTML, mentions, references, mathematics, links and emojis inside a line; not
``www.``, which at worst becomes a link to the address that it shows."""


def escaped(value: str) -> str:
    """Escape `value` to a single line without markup, mentions, links or HTML."""
    return _MARKUP.sub(lambda match: f"&#{ord(match.group())};", printable(value))


def code(value: str) -> str:
    """`value` as inline code on one line, also valid in table cells."""
    text = printable(value)
    if not text:
        return ""
    if "`" in text or "\\" in text:  # in a code span neither can be escaped
        return f"<code>{escaped(text)}</code>"
    return "`" + text.replace("|", "\\|") + "`"


def table(verdicts: Sequence[Verdict]) -> list[str]:
    """The lines of a table with one row per verdict."""
    lines = [
        "| benchmark | metric | base | head | change | interval | verdict | why |",
        "|---|---|--:|--:|--:|--:|---|---|",
    ]
    for verdict in verdicts:
        row_cells = (
            code(verdict.id),
            code(verdict.metric),
            *(escaped(number(value, verdict.unit)) for value in (verdict.base, verdict.head)),
            escaped(change_text(verdict)),
            escaped(interval_text(verdict)),
            f"{_mark(verdict)} {kind_text(verdict.kind)}",
            escaped(verdict.reason),
        )
        lines.append(f"| {' | '.join(row_cells)} |")
    return lines


def _mark(verdict: VerdictPart) -> str:
    return _MARKS.get(verdict.kind, _DOUBTFUL)


def several_heads(comparisons: Sequence[Comparison], *, only_changed: bool) -> Iterator[str]:
    """Lines of comparisons with one base: counts, notes and a table with a column per head."""
    labels = head_labels(len(comparisons))
    yield f"base: {code(comparisons[0].base)}"
    yield ""
    for label, comparison in zip(labels, comparisons, strict=True):
        yield f"- **{label}** {code(comparison.head)}: {escaped(headline(comparison.verdicts))}"
    yield ""
    for note in dict.fromkeys(note for comparison in comparisons for note in comparison.notes):
        yield from (f"> {escaped(note)}", "")
    rows = [row for row in rows_of(comparisons) if not (only_changed and row.is_unchanged)]
    if rows:
        yield from [*_table_of_rows(rows, labels), ""]
    for label, comparison in zip(labels, comparisons, strict=True):
        reasons = [
            f"- {' '.join(filter(None, (code(verdict.id), code(verdict.metric))))}: "
            f"{kind_text(verdict.kind)}: {escaped(verdict.reason)}"
            for verdict in changed(worst_first(comparison.verdicts))
            if verdict.reason
        ]
        yield from _details(f"reasons, {label}", reasons) if reasons else []
        yield from _differences(comparison, f", {label}")


def _table_of_rows(rows: Sequence[Row], labels: Sequence[str]) -> Iterator[str]:
    titles = [title for label in labels for title in (label, "change")]
    yield f"| benchmark | metric | base | {' | '.join(titles)} |"
    yield f"|---|---|{'--:|' * (1 + len(titles))}"
    for row in rows:
        base = "" if row.base is None else number(row.base.base, row.base.unit)
        cells = [text for cell in row.cells for text in _cells_of_head(cell)]
        yield f"| {' | '.join([code(row.id), code(row.metric), escaped(base), *cells])} |"


def _cells_of_head(cell: VerdictPart | None) -> tuple[str, str]:
    """Value or kind, and change with its mark."""
    if cell is None:
        return "", ""
    value = kind_text(cell.kind) if cell.head is None else number(cell.head, cell.unit)
    return escaped(value), f"{escaped(change_text(cell))} {_mark(cell)}".strip()


def section(
    comparison: Comparison, title: str, verdicts: Sequence[Verdict], collapsed: Iterable[str] = ()
) -> Iterator[str]:
    """Lines of a comparison: title, sides, notes, table, `collapsed`, environment differences."""
    yield from (title, "", f"{code(comparison.head)} against {code(comparison.base)}", "")
    for note in comparison.notes:
        yield from (f"> {escaped(note)}", "")
    yield from [*table(verdicts), ""] if verdicts else []
    yield from collapsed
    yield from _differences(comparison)


def _differences(comparison: Comparison, suffix: str = "") -> Iterator[str]:
    if differences := comparison.environment_differences:
        entries = [f"- {code(difference_text(difference))}" for difference in differences]
        summary = counted(len(differences), "environment difference")
        yield from _details(f"{summary}{suffix}", entries)


def _details(summary: str, lines: Iterable[str]) -> list[str]:
    """Collapse `lines` under `summary`; empty lines re-enable markdown inside the HTML."""
    return ["<details>", f"<summary>{escaped(summary)}</summary>", "", *lines, "", "</details>", ""]


_LIMIT_BYTES: Final = 1 << 20
"""GitHub's limit of a step's summary, 1 MiB: it shows no longer one."""

_LEVELS: Final[Mapping[VerdictKind, str]] = {
    "regressed": "error",
    "errored": "error",
    "inconclusive": "warning",
}
"""Annotations by verdict; other verdicts have none."""


def publish(
    comparison: Comparison,
    locations: Mapping[str, tuple[str, int]],
    *,
    reproduce: Sequence[str],
    accept: str = "",
    environ: Mapping[str, str] = os.environ,
) -> tuple[list[str], str]:
    """Append :func:`step_summary` to the job's summary, in a job of GitHub Actions.

    Returns:
        The :func:`annotations` to print, and the error of writing the summary, or empty.
    """
    problem = ""
    if file := environ.get("GITHUB_STEP_SUMMARY"):
        text = step_summary(comparison, reproduce=shlex.join(reproduce), accept=accept)
        try:
            with Path(file).open("a", encoding="utf-8", errors="backslashreplace") as summary:
                summary.write(f"{text}\n")
        except OSError as error:
            problem = f"cannot write GITHUB_STEP_SUMMARY={file}: {error.strerror}"
    is_action = environ.get("GITHUB_ACTIONS") == "true"
    return annotations(comparison, locations) if is_action else [], problem


def step_summary(comparison: Comparison, *, reproduce: str, accept: str) -> str:
    """Job summary: changes, collapsed remainder, and instructions.

    `reproduce` and `accept` are command lines. From a summary too long for GitHub the collapsed
    remainder is left out, with a note.
    """
    text = "\n".join(_page(comparison, reproduce, accept, include_unchanged=True))
    if len(text.encode()) > _LIMIT_BYTES:
        text = "\n".join(_page(comparison, reproduce, accept, include_unchanged=False))
    if len(text.encode()) > _LIMIT_BYTES:
        overflow_note = "too many verdicts for this page; see the run's verdicts.json"
        text = "\n".join([f"## {escaped(headline(comparison.verdicts))}", "", overflow_note, ""])
    return text


def annotations(comparison: Comparison, locations: Mapping[str, tuple[str, int]]) -> list[str]:
    """Workflow commands that annotate each regression at its benchmark.

    An inconclusive verdict is a warning. `locations` has file and line of benchmarks by node id;
    others are annotated without them.
    """
    return [
        f"::{_LEVELS[verdict.kind]} {_properties(verdict, locations)}::{_message(verdict)}"
        for verdict in worst_first(comparison.verdicts)
        if verdict.kind in _LEVELS
    ]


def _page(
    comparison: Comparison, reproduce: str, accept: str, *, include_unchanged: bool
) -> Iterator[str]:
    verdicts = worst_first(comparison.verdicts)
    unchanged = [verdict for verdict in verdicts if verdict.kind == "unchanged"]
    collapsed: list[str] = []
    if unchanged and include_unchanged:
        collapsed = _details(headline(unchanged), table(unchanged))
    elif unchanged:
        collapsed = [f"{escaped(headline(unchanged))}: too many to list here", ""]
    title = f"## {escaped(headline(verdicts))}"
    yield from section(comparison, title, changed(verdicts), collapsed)
    if reproduce:
        yield from ("To reproduce:", "", *_block(reproduce))
    if accept:
        yield from ("To accept, with a reason:", "", *_block(accept))


def _block(command: str) -> list[str]:
    """Code block of a command, with a fence longer than any inside it."""
    code_lines = [printable(line) for line in command.splitlines()]
    fence = "```"
    while any(fence in line for line in code_lines):
        fence += "`"
    return [f"{fence}shell", *code_lines, fence, ""]


def _properties(verdict: Verdict, locations: Mapping[str, tuple[str, int]]) -> str:
    properties = {"title": f"{verdict.id.rpartition('::')[2]}: {kind_text(verdict.kind)}"}
    if verdict.id in locations:
        file, line = locations[verdict.id]
        properties = {"file": file, "line": str(line), **properties}
    return ",".join(f"{name}={_escaped_property(value)}" for name, value in properties.items())


def _message(verdict: Verdict) -> str:
    subject = f"{verdict.metric} {change_text(verdict)}".strip()
    return _escaped(": ".join(filter(None, (verdict.id, subject, verdict.reason))))


def _escaped(text: str) -> str:
    """Escape a command's data for the runner; other controls become visible escapes."""
    lines = (printable(line) for line in text.splitlines())
    return "%0A".join(line.replace("%", "%25").replace("\r", "%0D") for line in lines)


def _escaped_property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
