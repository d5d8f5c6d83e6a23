"""Reasons of verdicts, each said once with the benchmarks that have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpubench_plugin.compare.threshold import MEDIANS
from gpubench_plugin.core.format import grouped, listed
from gpubench_plugin.core.verdicts import Comparison, Verdict
from gpubench_plugin.reports.text import printable
from gpubench_plugin.reports.verdicts import changed, has_value, kind_text, worst_first

SEPARATOR: Final = "; "  # between the clauses of a reason
_MAX_NAMES: Final = 3  # benchmarks named with a reason they share: more fill a line


@dataclass(frozen=True, kw_only=True)
class _Reason:
    """Clauses of a reason, the benchmarks that have it and for which heads; a `verdict` of it."""

    verdict: Verdict
    clauses: tuple[str, ...]
    heads_by_label: dict[str, list[int]]


def reasons(
    comparisons: Sequence[Comparison], labels: Mapping[str, str]
) -> Iterator[tuple[Verdict, str, Sequence[str]]]:
    """A verdict of each reason, the benchmarks that have it, and its clauses.

    What is unchanged needs none. A clause that several reasons have, such as the same doubt, is
    said once: before them if all have it, else after them. `labels` are the benchmarks' names on
    this screen.
    """
    found = _reasons(comparisons, labels)
    sharing = by_text([[*dict.fromkeys(reason.clauses)] for reason in found])
    shared = {
        clause: [found[position] for position in positions]
        for clause, positions in sharing.items()
        if len(positions) > 1
    }
    count = len(comparisons)
    for clause, having in shared.items():
        if len(having) == len(found):
            yield _said(having[0].verdict, "all of these", [clause])
    for reason in found:
        own = [clause for clause in reason.clauses if clause not in shared]
        if own or not has_value(reason.verdict):
            yield _said(reason.verdict, _names([reason], count), own)
    for clause, having in shared.items():
        if len(having) < len(found):
            yield _said(having[0].verdict, _names(having, count), [clause])


def by_text(texts: Sequence[Iterable[str]]) -> Mapping[str, list[int]]:
    """Positions of those, such as heads, that have each text."""
    return grouped((text, position) for position, own in enumerate(texts) for text in own)


def with_labels(text: str, labels: Mapping[str, str]) -> str:
    """The text with the label of each benchmark for its node id, but in commands."""
    parts = text.split("`")
    for node_id in sorted(labels, key=len, reverse=True) if "::" in text else ():
        parts[::2] = [part.replace(node_id, labels[node_id]) for part in parts[::2]]
    return "`".join(parts)


def heads_text(positions: Collection[int], heads: int) -> str:
    """``head 1`` or ``heads 1, 3``, counted from zero; empty if they are all of several."""
    if len(positions) == heads:
        return ""
    numbers = ", ".join(str(position + 1) for position in sorted(positions))
    return f"head{'s' * (len(positions) > 1)} {numbers}"


def _reasons(comparisons: Sequence[Comparison], labels: Mapping[str, str]) -> list[_Reason]:
    """Reasons by kind and text, the worst first; without what notes or the table say anyway."""
    found: dict[tuple[bool, str, str], _Reason] = {}
    for head, comparison in enumerate(comparisons):
        verdicts = changed(worst_first(comparison.verdicts))
        counts = Counter(verdict.id for verdict in verdicts)
        for verdict in filter(lambda verdict: verdict.reason, verdicts):
            label = labels[verdict.id]
            if counts[verdict.id] > 1 or not has_value(verdict):
                label = f"{label} {printable(verdict.metric)}".strip()
            clauses = [
                with_labels(clause, labels)
                for clause in verdict.reason.split(SEPARATOR)
                if clause not in comparison.notes and not clause.startswith(MEDIANS)
            ]
            key = (has_value(verdict), verdict.kind, verdict.reason)
            reason = found.setdefault(
                key, _Reason(verdict=verdict, clauses=tuple(clauses), heads_by_label={})
            )
            reason.heads_by_label.setdefault(label, []).append(head)
    return [*found.values()]


def _names(reasons: Sequence[_Reason], heads: int) -> str:
    """``mlp_train (head 1), mlp_infer (heads 2, 3)``; heads only where there are several."""
    positions: dict[str, set[int]] = {}
    for reason in reasons:
        for label, having in reason.heads_by_label.items():
            positions.setdefault(label, set()).update(having)
    texts = [(label, heads_text(having, heads)) for label, having in positions.items()]
    return listed([f"{label} ({text})" if text else label for label, text in texts], _MAX_NAMES)


def _said(
    verdict: Verdict, names: str, clauses: Sequence[str]
) -> tuple[Verdict, str, Sequence[str]]:
    """With the kind before the names where no row has it."""
    kind = "" if has_value(verdict) else kind_text(verdict.kind)
    return verdict, ": ".join(filter(None, (kind, names))), clauses
