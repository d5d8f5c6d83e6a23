"""Verdicts in words, marks and numbers: one word per kind on every screen, that of the JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from gpubench_plugin.core.format import change_percentage, quantity
from gpubench_plugin.core.records import Outcome
from gpubench_plugin.core.verdicts import (
    VERDICT_KINDS,
    FactDifference,
    Verdict,
    VerdictKind,
    VerdictPart,
)
from gpubench_plugin.reports.markup import BAD, CAUTION, GOOD, PLAIN, Markup

# Any other verdict is doubtful.
_COLOURS: Final[Mapping[VerdictKind, Markup]] = {
    "regressed": BAD,
    "errored": BAD,
    "improved": GOOD,
    "unchanged": PLAIN,
}


def headline(
    verdicts: Iterable[VerdictPart], mark_of: Callable[[VerdictKind], str] = lambda _: ""
) -> str:
    """Counts by kind, ``2 regressed · 1 improved · 46 unchanged``, with their marks."""
    counts = Counter(verdict.kind for verdict in verdicts)
    parts = (
        f"{mark_of(kind)} {counts[kind]} {kind_text(kind)}".strip()
        for kind in VERDICT_KINDS
        if counts[kind]
    )
    return " · ".join(parts) or "nothing was compared"


def kind_text(kind: VerdictKind | Outcome) -> str:
    """The words of a kind or an outcome: ``regressed``, ``no baseline``, ``not measured``."""
    return kind.replace("_", " ")


def mark(kind: VerdictKind) -> str:
    """A sign for a kind: ``✗`` regressed, ``✓`` improved, ``=`` unchanged, ``?`` inconclusive.

    Empty for kinds that compare no values.
    """
    marks: Mapping[VerdictKind, str] = {
        "regressed": "✗",
        "errored": "!",
        "improved": "✓",
        "unchanged": "=",
        "inconclusive": "?",
    }
    return marks.get(kind, "")


def colour(verdict: VerdictPart) -> Markup:
    """The colour of a verdict."""
    return _COLOURS.get(verdict.kind, CAUTION)


def overall_colour(verdicts: Iterable[VerdictPart]) -> Markup:
    """The colour of all `verdicts` together."""
    kinds = {verdict.kind for verdict in verdicts}
    if kinds & {"regressed", "errored"}:
        return BAD
    return GOOD if kinds and kinds <= {"improved", "unchanged"} else CAUTION


def worst_first(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Sort regressions first, then failures, then by effect; verdicts without one come last."""
    return sorted(verdicts, key=lambda verdict: (severity(verdict), verdict.id, verdict.metric))


def severity(verdict: VerdictPart) -> tuple[int, float]:
    """Key that sorts the worst verdict first."""
    group = {"regressed": 0, "errored": 1}.get(verdict.kind, 2 if verdict.effect is not None else 3)
    return group, -(verdict.effect or 0.0)


def changed(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Verdicts other than "unchanged"."""
    return [verdict for verdict in verdicts if verdict.kind != "unchanged"]


def has_value(verdict: VerdictPart) -> bool:
    """Whether there is a number to show."""
    return verdict.base is not None or verdict.head is not None


def number(value: float | None, unit: str) -> str:
    """A value with its unit, or empty."""
    return "" if value is None else quantity(value, unit)


def change_text(verdict: VerdictPart) -> str:
    """Change from base to head, head/base − 1: ``+4.12%``, in doubt ``≈ +4%``, or empty."""
    effect, is_rough = verdict.effect, verdict.doubts and verdict.interval is None
    change = -effect if effect is not None and verdict.better == "higher" else effect
    text = signed(change, 1 if is_rough else 3)
    return f"≈ {text}" if verdict.doubts and text else text


def interval_text(verdict: VerdictPart) -> str:
    """Interval of the change: ``[+3.20%, +5.04%]``; empty without one."""
    if verdict.interval is None:
        return ""
    low, high = verdict.interval
    if verdict.better == "higher":
        low, high = -high, -low
    return f"[{signed(low)}, {signed(high)}]"


def signed(fraction: float | None, digits: int = 3) -> str:
    """Fraction in percent with sign: ``+4.12%``, ``-38.2%``, ``+193%``; empty without one."""
    return "" if fraction is None else change_percentage(fraction, digits, with_sign=True)


def difference_text(difference: FactDifference) -> str:
    """``torch.version: "2.12.0" → "2.13.0"``."""
    base, head = (
        "absent" if fact is None else json.dumps(fact, default=str, ensure_ascii=False)
        for fact in (difference.base, difference.head)
    )
    return f"{difference.key}: {base} → {head}"
