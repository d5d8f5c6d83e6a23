"""GitHub reports: a page in Markdown, for comments and a job's summary, and annotations.

Names and texts in them are shown as text, since a pull request may choose them.
"""

# No ``from __future__ import annotations``: a function of this module has that name.

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from gpubench_plugin.core.format import counted
from gpubench_plugin.core.records import STEP_TIME
from gpubench_plugin.core.verdicts import VERDICT_KINDS, Comparison, Verdict, VerdictKind
from gpubench_plugin.reports.names import short_names
from gpubench_plugin.reports.reasons import SEPARATOR, reasons
from gpubench_plugin.reports.text import NOTHING, printable, shorten
from gpubench_plugin.reports.verdicts import (
    change_text,
    changed,
    difference_text,
    has_value,
    headline,
    interval_text,
    kind_text,
    number,
    worst_first,
)

# Marks beside the word, never instead of it; any other verdict is doubtful.
_MARKS: Final[Mapping[str, str]] = {
    "regressed": "🔴",
    "errored": "💥",
    "improved": "🟢",
    "unchanged": "⚪",
}

LIMIT: Final = 60_000
"""Bytes of a page: a comment of GitHub has at most 65,536 characters, and a workflow adds to it."""
_FRAME: Final = 1_200  # what headings and the counts of what was left out take, at most
_LONGEST: Final = 4_096  # bytes of an item; a longer one is left out for the sake of others
_NAME_ROOM: Final = 60  # columns of a benchmark's name
_SIDE_ROOM: Final = 100  # columns of the name of base or head
_CLAUSES_ROOM: Final = 160  # characters of a reason on one line
_FEW: Final = 5  # as many need not be collapsed

# What makes a word more than text: markup, HTML, mathematics, links, mentions, references, emojis.
_MARKUP: Final = re.compile(
    r"[`*_~#@$\\]|<(?=[a-zA-Z/!?])|&(?=#?\w+;)|\](?=[(\[:])|://|\bwww\.|:[\w+-]+:|\b[A-Z]+-\d"
)
_BLOCK: Final = re.compile(r"[>\[]|[-+=]+$|\d+[.)]$")  # the same of a line's first word
# A word, or what is between backticks: a command or a name.
_WORD: Final = re.compile(r"(?:`[^`]+`|\S)\S*")
_QUOTED: Final = re.compile(r"`([^`]+)`([,;:.)]*)")


def code(value: str) -> str:
    """`value` as a code span, in which nothing is markup."""
    text = printable(value)
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    padding = " " * (text.startswith("`") or text.endswith("`"))
    return text and f"{fence}{padding}{text}{padding}{fence}"


def prose(value: str) -> str:
    """`value` on one line, as it reads: words that are markup, and commands, are code spans."""

    def shown(match: re.Match[str]) -> str:
        word = match[0]
        if quoted := _QUOTED.fullmatch(word):
            return code(quoted[1]) + quoted[2]
        if _MARKUP.search(word) or (not match.start() and _BLOCK.match(word)):
            core = word.rstrip(",;:.")
            return (code(core) or code(word)) + word[len(core) :] * bool(core)
        return word

    return _WORD.sub(shown, printable(value))


def _mark(kind: VerdictKind) -> str:
    return _MARKS.get(kind, "🟡")


@dataclass
class _Room:
    """Bytes that are `left` of a page."""

    left: int

    def take(self, items: Sequence[str]) -> list[str]:
        """The first `items`, until one does not fit, and the number of those left out."""
        kept = []
        for item in items:
            size = len(item.encode()) + 1
            if size > self.left:
                self.left = 0
                break
            if size <= _LONGEST:
                self.left -= size
                kept.append(item)
        missing = len(items) - len(kept)
        return [*kept, *[f"- and {missing} more than fit here"] * bool(missing)]


def page(
    comparison: Comparison,
    *,
    only_changed: bool = False,
    reproduce: str = "",
    accept: str = "",
    limit: int = LIMIT,
) -> str:
    """A comment or a job's summary: headline, sides, notes, changes, what is open, the rest.

    `reproduce` and `accept` are command lines. Above `limit` bytes these are left out and counted,
    in this order: what is unchanged, environment differences, what is undecided, reasons, notes,
    and the least of the changes.
    """
    verdicts = [_without_doubts(verdict) for verdict in worst_first(comparison.verdicts)]
    changes = sorted(filter(_matters, verdicts), key=_magnitude)
    undecided = [v for v in changed(verdicts) if not _matters(v)]
    unchanged = [v for v in verdicts if v.kind == "unchanged" and not only_changed]
    names = short_names(verdict.id for verdict in verdicts).fitting(_NAME_ROOM)

    def rows(some: Iterable[Verdict]) -> list[str]:
        return [_row(verdict, names.by_id[verdict.id]) for verdict in some]

    def why(some: Sequence[Verdict]) -> list[str]:
        labels = {node_id: f"`{name}`" for node_id, name in names.by_id.items()}
        found = reasons([replace(comparison, verdicts=tuple(some))], labels)
        return [_reason(subject, clauses) for _, subject, clauses in found]

    room = _Room(limit - _FRAME)
    # The most important first: others get what they leave.
    sides = room.take([_sides(comparison, names.file)])
    commands = room.take([*_commands(reproduce, accept)])
    shown = room.take(rows(changes))
    notes = room.take([f"> {prose(note)}\n" for note in comparison.notes])
    causes = room.take(why(changes))
    open_rows = [*room.take(rows(undecided)), *room.take(why(undecided))]
    differences = [f"- {code(difference_text(d))}" for d in comparison.environment_differences]
    environment = room.take(differences)
    same = room.take(rows(unchanged))
    sections = (
        [f"## {headline(verdicts, _mark)}", "", *sides, ""],
        notes,
        [*shown, ""] if shown else [],
        _details("Why", causes, is_open=len(causes) <= _FEW),
        _details(_summary(undecided), open_rows, is_open=len(undecided) <= _FEW),
        _details(_summary(unchanged), same),
        _details(counted(len(differences), "environment difference"), environment),
        commands,
    )
    return "\n".join(line for section in sections for line in section).rstrip("\n") + "\n"


def _matters(verdict: Verdict) -> bool:
    return verdict.kind in {"regressed", "errored", "improved"} or verdict.is_unchecked


def _magnitude(verdict: Verdict) -> tuple[int, float]:
    return VERDICT_KINDS.index(verdict.kind), -abs(verdict.effect or 0.0)


def _without_doubts(verdict: Verdict) -> Verdict:
    """The verdict without those doubts in its reason that its row names."""
    doubts = f"in doubt: {verdict.doubts}"
    clauses = (clause for clause in verdict.reason.split(SEPARATOR) if clause != doubts)
    return replace(verdict, reason=SEPARATOR.join(clauses))


def _sides(comparison: Comparison, file: str) -> str:
    head, base = (code(shorten([s], _SIDE_ROOM)[0]) for s in (comparison.head, comparison.base))
    return f"{head} against {base}{f', in {code(file)}' if file else ''}"


def _row(verdict: Verdict, name: str) -> str:
    """``- 🔴 regressed `mlp`: 10.00 ms → 10.50 ms, ≈ +5% [+4%, +6%]; in doubt: …``."""
    has_metric = verdict.metric not in {"", STEP_TIME}
    subject = " ".join((_mark(verdict.kind), kind_text(verdict.kind), code(name)))
    values = [number(value, verdict.unit) or NOTHING for value in (verdict.base, verdict.head)]
    change = f"{change_text(verdict)} {interval_text(verdict)}".strip()
    facts = ", ".join(filter(None, (" → ".join(values) * has_value(verdict), change)))
    doubts = f"in doubt: {verdict.doubts}" * bool(verdict.doubts)
    text = SEPARATOR.join(filter(None, (facts, doubts)))
    return (
        f"- {subject}{f' {code(verdict.metric)}' * has_metric}{f': {prose(text)}' if text else ''}"
    )


def _reason(subject: str, clauses: Sequence[str]) -> str:
    """A reason on one line, or one below it for each of its clauses."""
    text = SEPARATOR.join(clauses)
    if len(subject) + len(text) <= _CLAUSES_ROOM:
        return f"- {prose(': '.join(filter(None, (subject, text))))}"
    return "\n".join((f"- {prose(subject)}:", *(f"  - {prose(clause)}" for clause in clauses)))


def _summary(verdicts: Sequence[Verdict]) -> str:
    doubtful = sum(bool(verdict.doubts) for verdict in verdicts)
    return f"{headline(verdicts, _mark)}{f' · {doubtful} in doubt' * bool(doubtful)}"


def _details(summary: str, lines: Sequence[str], *, is_open: bool = False) -> list[str]:
    """Collapse `lines` under `summary`; empty lines re-enable markdown inside the HTML."""
    start = f"<details{' open' * is_open}><summary>{summary}</summary>"
    return [start, "", *lines, "", "</details>", ""] if lines else []


def _commands(*lines: str) -> Iterator[str]:
    for purpose, line in zip(("reproduce", "accept, with a reason"), lines, strict=True):
        if line:
            # A fence longer than any inside it.
            fence = "`" * max(3, 1 + max(map(len, re.findall("`*", line))))
            yield f"To {purpose}:\n\n{fence}shell\n{printable(line)}\n{fence}\n"


def publish(
    comparison: Comparison,
    locations: Mapping[str, tuple[str, int]],
    *,
    reproduce: Sequence[str],
    accept: str = "",
    environ: Mapping[str, str] = os.environ,
) -> tuple[list[str], str]:
    """Append :func:`page` to the job's summary, in a job of GitHub Actions.

    Returns:
        The :func:`annotations` to print, and the error of writing the summary, or empty.
    """
    problem = ""
    if file := environ.get("GITHUB_STEP_SUMMARY"):
        text = page(comparison, reproduce=shlex.join(reproduce), accept=accept)
        try:
            with Path(file).open("a", encoding="utf-8", errors="backslashreplace") as summary:
                summary.write(f"{text}\n")
        except OSError as error:
            problem = f"cannot write GITHUB_STEP_SUMMARY={file}: {error.strerror}"
    is_action = environ.get("GITHUB_ACTIONS") == "true"
    return annotations(comparison, locations) if is_action else [], problem


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
