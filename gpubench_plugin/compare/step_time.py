"""One verdict on the step time of a benchmark, by all that is judged of it: floor, median, rate.

The floor is what the code can do, and the most exact; it does not see what slows only some of the
calls. The median does not see what slows fewer than half of them; the rate, by the total, sees all
calls, and everything else on the machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Final

from gpubench_plugin.compare.series import Series, change, enumerated
from gpubench_plugin.records import Part, Verdict, VerdictKind

_WORST_FIRST: Final[tuple[VerdictKind, ...]] = (
    "errored",
    "incomparable",
    "no_baseline",
    "not_measured",
    "regressed",
    "inconclusive",
    "improved",
    "unchanged",
)
"""A step time is what the worst of its parts is: ``unchanged`` only if all are."""


Subject = tuple[str, str]
"""What a verdict is about: a benchmark, and a metric or its step time."""


def subject_of(series: Series) -> Subject:
    """What the verdict on it is about: all parts of one step time have one."""
    return series.id, "step time" if series.part else series.metric


def whole(series: Sequence[Series], verdicts: Sequence[Verdict]) -> dict[Subject, Verdict]:
    """The verdicts, each on one of the `series`, with one for all parts of a step time."""
    subjects: dict[Subject, list[tuple[Series, Verdict]]] = {}
    for pair in zip(series, verdicts, strict=True):
        subjects.setdefault(subject_of(pair[0]), []).append(pair)
    return {subject: _of_parts(parts) for subject, parts in subjects.items()}


def _of_parts(parts: Sequence[tuple[Series, Verdict]]) -> Verdict:
    decisive = min((verdict for _, verdict in parts), key=_worst_first)
    remarks = [one.remark for one, _ in parts if one.remark]
    if len(parts) == 1:
        return replace(decisive, reason="; ".join([decisive.reason, *remarks]))
    moved = [verdict.metric for _, verdict in parts if verdict.kind == decisive.kind]
    several = len(moved) > 1 and decisive.kind in {"regressed", "improved"}
    named = f"{enumerated(moved)}: " if several else ""  # every report names a single one
    others = [_brief(*part) for part in parts if part[1] is not decisive]
    return replace(
        decisive,
        reason="; ".join([f"{named}{decisive.reason}", *filter(None, others), *remarks]),
        parts=tuple(_part(verdict) for _, verdict in parts),
    )


def _worst_first(verdict: Verdict) -> tuple[int, float]:
    """Of what is open first what needs most: its reason says what decides the step time."""
    is_open = verdict.kind == "inconclusive"
    needed = verdict.pairs_needed or math.inf
    return _WORST_FIRST.index(verdict.kind), -needed if is_open else 0.0


def _brief(series: Series, verdict: Verdict) -> str:
    """``samples_per_s 0.3 % lower, inconclusive (limit 5%)``."""
    if verdict.effect is None:
        return f"{verdict.metric} {verdict.kind.replace('_', ' ')}"
    is_tolerated = verdict.kind == "unchanged" and verdict.effect >= series.limit.bound
    kind = "not surely worse" if is_tolerated else verdict.kind  # of a loose series alone
    return f"{verdict.metric} {change(series, verdict.effect)}, {kind} (limit {series.limit.text})"


def _part(verdict: Verdict) -> Part:
    return Part(**{field.name: getattr(verdict, field.name) for field in fields(Part)})
