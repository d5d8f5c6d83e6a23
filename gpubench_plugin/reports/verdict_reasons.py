"""Reasons of verdicts below a table, each said once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpubench_plugin.compare.threshold import MEDIANS
from gpubench_plugin.core.format import listed
from gpubench_plugin.core.records import Comparison, Verdict
from gpubench_plugin.reports.markup import Line, marked
from gpubench_plugin.reports.table import GAP, wrapped
from gpubench_plugin.reports.text import ASCII, Glyphs, printable
from gpubench_plugin.reports.verdicts import changed, colour, has_value, kind_text, worst_first

_MAX_NAMES: Final = 3  # benchmarks named with a reason they share: more fill a line
_SEPARATOR: Final = "; "  # between the clauses of a reason


@dataclass(frozen=True, kw_only=True)
class _Reason:
    """Clauses of a reason, the benchmarks that have it and for which heads; a `verdict` of it."""

    verdict: Verdict
    clauses: tuple[str, ...]
    heads_by_label: dict[str, list[int]]


def reason_lines(
    comparisons: Sequence[Comparison], labels: Mapping[str, str], width: int, glyphs: Glyphs
) -> Iterator[Line]:
    """A line per reason with the benchmarks that have it; what is unchanged needs none.

    A clause that several reasons have, such as the same doubt, is said once: before them if all
    have it, else after them. `labels` are the benchmarks' names on this screen.
    """
    reasons = _reasons(comparisons, labels)
    sharing: dict[str, list[_Reason]] = {}
    for reason in reasons:
        for clause in dict.fromkeys(reason.clauses):
            sharing.setdefault(clause, []).append(reason)
    shared = {clause: having for clause, having in sharing.items() if len(having) > 1}
    count = len(comparisons)
    for clause, having in shared.items():
        if len(having) == len(reasons):
            yield from _lines(having[0].verdict, "all of these", clause, width, glyphs)
    for reason in reasons:
        own = [clause for clause in reason.clauses if clause not in shared]
        if own or not has_value(reason.verdict):
            names = _names([reason], count)
            yield from _lines(reason.verdict, names, _SEPARATOR.join(own), width, glyphs)
    for clause, having in shared.items():
        if len(having) < len(reasons):
            yield from _lines(having[0].verdict, _names(having, count), clause, width, glyphs)


def with_labels(text: str, labels: Mapping[str, str]) -> str:
    """The text with the label of each benchmark for its node id."""
    for node_id in sorted(labels, key=len, reverse=True) if "::" in text else ():
        text = text.replace(node_id, labels[node_id])
    return text


def reworded(text: str, glyphs: Glyphs) -> str:
    """The text of a record in the symbols of this terminal."""
    if glyphs != ASCII:
        return text
    return text.replace("µ", glyphs.micro).replace("≥", ">=").replace("…", glyphs.ellipsis)


def heads_text(positions: Collection[int], heads: int) -> str:
    """``head 1`` or ``heads 1, 3``, counted from zero; empty if they are all of several."""
    if len(positions) == heads:
        return ""
    numbers = ", ".join(str(position + 1) for position in sorted(positions))
    return f"head{'s' * (len(positions) > 1)} {numbers}"


def _reasons(comparisons: Sequence[Comparison], labels: Mapping[str, str]) -> list[_Reason]:
    """Reasons by kind and text, the worst first; without what notes or the table say anyway."""
    reasons: dict[tuple[bool, str, str], _Reason] = {}
    for head, comparison in enumerate(comparisons):
        verdicts = changed(worst_first(comparison.verdicts))
        counts = Counter(verdict.id for verdict in verdicts)
        for verdict in filter(lambda verdict: verdict.reason, verdicts):
            label = labels[verdict.id]
            if counts[verdict.id] > 1 or not has_value(verdict):
                label = f"{label} {printable(verdict.metric)}".strip()
            clauses = [
                with_labels(clause, labels)
                for clause in verdict.reason.split(_SEPARATOR)
                if clause not in comparison.notes and not clause.startswith(MEDIANS)
            ]
            key = (has_value(verdict), verdict.kind, verdict.reason)
            reason = reasons.setdefault(
                key, _Reason(verdict=verdict, clauses=tuple(clauses), heads_by_label={})
            )
            reason.heads_by_label.setdefault(label, []).append(head)
    return [*reasons.values()]


def _names(reasons: Sequence[_Reason], heads: int) -> str:
    """``mlp_train (head 1), mlp_infer (heads 2, 3)``; heads only where there are several."""
    positions: dict[str, set[int]] = {}
    for reason in reasons:
        for label, having in reason.heads_by_label.items():
            positions.setdefault(label, set()).update(having)
    texts = [(label, heads_text(having, heads)) for label, having in positions.items()]
    return listed([f"{label} ({text})" if text else label for label, text in texts], _MAX_NAMES)


def _lines(verdict: Verdict, names: str, text: str, width: int, glyphs: Glyphs) -> Iterator[Line]:
    """``mlp_train, mlp_infer: 38% slower, limit 2%``; the kind first where no row has it."""
    kind = "" if has_value(verdict) else kind_text(verdict.kind)
    full_text = ": ".join(filter(None, (kind, names, reworded(text, glyphs))))
    yield from marked(wrapped(full_text, width, hanging=GAP, cut_words=True), colour(verdict))
