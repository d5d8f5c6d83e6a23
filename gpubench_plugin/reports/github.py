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
from gpubench_plugin.core.verdicts import Comparison, Verdict
from gpubench_plugin.reports.text import printable
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

# Marks beside the word, never instead of it; any other verdict is doubtful.
_MARKS: Final = {"regressed": "🔴", "errored": "💥", "improved": "🟢", "unchanged": "⚪"}

# GitHub's markup, HTML, mentions, references, mathematics, links and emojis inside a line; not
# `www.`, which at worst becomes a link to the address that it shows.
_MARKUP: Final = re.compile(r"[#$&*<>@\[\\\]_`|~]|:(?=/|\w+:)")


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
        "| benchmark | metric | base | head | change | interval | verdict | doubts | why |",
        "|---|---|--:|--:|--:|--:|---|---|---|",
    ]
    for verdict in verdicts:
        row_cells = (
            code(verdict.id),
            code(verdict.metric),
            *(escaped(number(value, verdict.unit)) for value in (verdict.base, verdict.head)),
            escaped(change_text(verdict)),
            escaped(interval_text(verdict)),
            f"{_MARKS.get(verdict.kind, '🟡')} {kind_text(verdict.kind)}",
            escaped(verdict.doubts),
            escaped(verdict.reason),
        )
        lines.append(f"| {' | '.join(row_cells)} |")
    return lines


def section(
    comparison: Comparison, title: str, verdicts: Sequence[Verdict], collapsed: Iterable[str] = ()
) -> Iterator[str]:
    """Lines of a comparison: title, sides, notes, table, `collapsed`, environment differences."""
    yield from (title, "", f"{code(comparison.head)} against {code(comparison.base)}", "")
    for note in comparison.notes:
        yield from (f"> {escaped(note)}", "")
    yield from [*table(verdicts), ""] if verdicts else []
    yield from collapsed
    if differences := comparison.environment_differences:
        entries = [f"- {code(difference_text(difference))}" for difference in differences]
        yield from _details(counted(len(differences), "environment difference"), entries)


def _details(summary: str, lines: Iterable[str]) -> list[str]:
    """Collapse `lines` under `summary`; empty lines re-enable markdown inside the HTML."""
    return ["<details>", f"<summary>{escaped(summary)}</summary>", "", *lines, "", "</details>", ""]


_LIMIT_BYTES: Final = 1 << 20  # GitHub shows no longer summary of a step


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
    remainder is left out, then all but the headline, with a note.
    """
    verdicts = worst_first(comparison.verdicts)
    unchanged = [verdict for verdict in verdicts if verdict.kind == "unchanged"]
    title = f"## {escaped(headline(verdicts))}"
    commands: list[str] = []
    for purpose, command in (("reproduce", reproduce), ("accept, with a reason", accept)):
        if command:
            # A fence longer than any inside it.
            fence = "`" * max(3, 1 + max(map(len, re.findall("`*", command))))
            commands += [f"To {purpose}:", "", f"{fence}shell", printable(command), fence, ""]
    for collapsed in (
        _details(headline(unchanged), table(unchanged)) if unchanged else [],
        [f"{headline(unchanged)}: too many to list here", ""],
    ):
        lines = section(comparison, title, changed(verdicts), collapsed)
        text = "\n".join([*lines, *commands])
        if len(text.encode()) <= _LIMIT_BYTES:
            return text
    overflow_note = "too many verdicts for this page; see the run's verdicts.json"
    return f"{title}\n\n{overflow_note}\n"


def annotations(comparison: Comparison, locations: Mapping[str, tuple[str, int]]) -> list[str]:
    """Workflow commands that annotate each regression at its benchmark.

    Those for lack of earlier runs share one notice. `locations` has file and line of benchmarks by
    node id; others are annotated without them.
    """
    lines = [_annotation(v, locations) for v in worst_first(comparison.verdicts) if _level(v)]
    if runs := [v.runs_needed for v in comparison.verdicts if v.runs_needed]:
        needs = f"the baseline needs {counted(max(runs), 'more run')}"
        lines.append(f"::notice title=cannot judge yet::{counted(len(runs), 'verdict')}: {needs}")
    return lines


def _level(verdict: Verdict) -> str:
    """Level of the verdict's own annotation; empty for none."""
    if verdict.kind in {"regressed", "errored"}:
        return "error"
    is_undecided = verdict.kind == "inconclusive" and not verdict.runs_needed
    return "warning" if is_undecided and verdict.effect != 0 else ""


def _annotation(verdict: Verdict, locations: Mapping[str, tuple[str, int]]) -> str:
    properties = {"title": f"{verdict.id.rpartition('::')[2]}: {kind_text(verdict.kind)}"}
    if verdict.id in locations:
        file, line = locations[verdict.id]
        properties = {"file": file, "line": str(line), **properties}
    texts = {name: _escaped(value) for name, value in properties.items()}
    settings = [f"{k}={v.replace(':', '%3A').replace(',', '%2C')}" for k, v in texts.items()]
    subject = f"{verdict.metric} {change_text(verdict)}".strip()
    message = _escaped(": ".join(filter(None, (verdict.id, subject, verdict.reason))))
    return f"::{_level(verdict)} {','.join(settings)}::{message}"


def _escaped(text: str) -> str:
    """Escape a command's data for the runner; other controls become visible escapes."""
    lines = (printable(line) for line in text.splitlines())
    return "%0A".join(line.replace("%", "%25") for line in lines)
