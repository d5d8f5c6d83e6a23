"""Markdown as GitHub reads it, of names and texts that anybody may have chosen."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gpubench_plugin.reports.headline import words
from gpubench_plugin.reports.text import printable
from gpubench_plugin.reports.verdict_cells import difference_text, row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpubench_plugin.verdicts import Comparison, Difference, Verdict

_MARKS: Final = {"regressed": "🔴", "errored": "💥", "improved": "🟢", "unchanged": "⚪"}
"""Beside the word, never instead of it; any other verdict is doubtful."""
_DOUBTFUL: Final = "🟡"

_MARKUP: Final = re.compile(r"[#$&*<>@\[\\\]_`|~]|:(?=/|\w+:)")
"""What GitHub would take as markup, HTML, a mention, a reference, mathematics, a link or an emoji
inside a line; dots of ``www.`` aside, which at worst become a link to what they say."""


def text(value: str) -> str:
    """`value` as text on one line: nothing in it is markup, a mention, a link or HTML."""
    return _MARKUP.sub(lambda match: f"&#{ord(match.group())};", printable(value))


def code(value: str) -> str:
    """`value` as code on one line, also in a table's cell."""
    shown = printable(value)
    if not shown:
        return ""
    if "`" in shown or "\\" in shown:  # in a code span neither can be escaped
        return f"<code>{text(shown)}</code>"
    return "`" + shown.replace("|", "\\|") + "`"


def table(verdicts: Sequence[Verdict]) -> list[str]:
    """The lines of a table with one row per verdict; none without verdicts."""
    if not verdicts:
        return []
    lines = [
        "| benchmark | metric | base | head | effect | interval | verdict | why |",
        "|---|---|--:|--:|--:|--:|---|---|",
    ]
    for verdict in verdicts:
        cells = row(verdict, words(verdict))
        mark = _MARKS.get(verdict.kind, _DOUBTFUL)
        shown = (
            code(cells.benchmark),
            code(verdict.metric) + text(cells.metric[len(verdict.metric) :]),
            text(cells.base),
            text(cells.head),
            text(cells.effect),
            text(cells.interval),
            f"{mark} {text(cells.verdict)}",
            text(cells.reason),
        )
        lines.append(f"| {' | '.join(shown)} |")
    return lines


def details(summary: str, lines: Iterable[str]) -> list[str]:
    """The `lines` folded under `summary`; the empty lines let markdown go on inside the HTML."""
    return ["<details>", f"<summary>{text(summary)}</summary>", "", *lines, "", "</details>", ""]


def environment(differences: Sequence[Difference]) -> list[str]:
    """Each difference of the environment, folded; nothing where there is none."""
    if not differences:
        return []
    listed = [f"- {code(difference_text(difference))}" for difference in differences]
    plural = "s" * (len(differences) != 1)
    return details(f"{len(differences)} difference{plural} of the environment", listed)


def head(comparison: Comparison) -> str:
    """Which is compared with which."""
    return f"{code(comparison.head)} against {code(comparison.base)}"


def notes(comparison: Comparison) -> list[str]:
    """The notes of a comparison, each a paragraph of its own."""
    return [line for note in comparison.notes for line in (f"> {text(note)}", "")]
