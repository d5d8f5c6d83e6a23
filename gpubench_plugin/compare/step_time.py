"""One step time verdict per benchmark, combined from minimum, median and rate.

The minimum is the most exact, but blind to what slows only some of the calls. The median is blind
to what slows fewer than half of them; the rate, by the total, includes all calls, and all other
load of the machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gpubench_plugin.compare.launch_values import LaunchValues, effect_text
from gpubench_plugin.core.format import grouped
from gpubench_plugin.core.records import shared
from gpubench_plugin.core.verdicts import Verdict, VerdictKind, VerdictPart

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
"""A step time has the worst verdict of its parts: it is ``unchanged`` only if all are."""

Subject = tuple[str, str]
"""A benchmark's id, and a metric or ``step time``."""


def subject_of(series: LaunchValues) -> Subject:
    """Subject of the verdict; all parts of a step time share one."""
    return series.id, "step time" if series.part else series.metric


def merge_parts(
    series: Sequence[LaunchValues], verdicts: Sequence[Verdict]
) -> dict[Subject, Verdict]:
    """Merge the verdicts on the parts of a step time; others stay single."""
    subjects = grouped((subject_of(pair[0]), pair) for pair in zip(series, verdicts, strict=True))
    return {subject: _merge_verdicts(parts) for subject, parts in subjects.items()}


def _merge_verdicts(parts: Sequence[tuple[LaunchValues, Verdict]]) -> Verdict:
    deciding = [part for part in parts if not _yields(*part)]
    if len(parts) > 1 and all(s.part == "rate" and v.kind != "regressed" for s, v in deciding):
        deciding = []  # a rate alone shows neither that nothing changed nor that it is better
    decisive = min((verdict for _, verdict in deciding or parts), key=_severity_key)
    remarks = [item.remark for item, _ in parts if item.remark]
    if parts[0][0].is_trusted and decisive.doubts:
        remarks.append(f"in doubt: {decisive.doubts}")
    if len(parts) == 1:
        return replace(decisive, reason="; ".join([decisive.reason, *remarks]))
    others = [_summary(*part) for part in parts if part[1] is not decisive and deciding]
    return replace(
        decisive,
        reason="; ".join([decisive.reason, *others, *remarks]),
        parts=tuple(VerdictPart(**shared(VerdictPart, verdict)) for _, verdict in parts),
    )


def _yields(series: LaunchValues, verdict: Verdict) -> bool:
    """Whether the part leaves the verdict to the others.

    It is in doubt, or too wide around a value that does not reach the limit.
    """
    is_open = verdict.kind == "inconclusive" and not series.is_trusted
    is_wide = verdict.method == "threshold" and (verdict.effect or 0.0) < series.limit.bound
    return is_open and (bool(series.doubt) or is_wide)


def _severity_key(verdict: Verdict) -> tuple[int, float]:
    """Sort key: undecided verdicts by the pairs they need, most first."""
    is_open = verdict.kind == "inconclusive"
    pairs_needed = verdict.pairs_needed or math.inf
    return _WORST_FIRST.index(verdict.kind), -pairs_needed if is_open else 0.0


def _summary(series: LaunchValues, verdict: Verdict) -> str:
    """Short form: ``samples_per_s 0.3% lower, inconclusive (limit 5%)``."""
    if series.doubt and _yields(series, verdict):
        return f"{verdict.metric} in doubt: {series.doubt}"
    if verdict.effect is None:
        return f"{verdict.metric} {verdict.kind.replace('_', ' ')}"
    kind: str = verdict.kind
    if kind == "unchanged":  # a lenient series may be worse, and any much better
        is_worse = verdict.effect >= series.limit.bound
        kind = "not significantly worse" if is_worse else "not worse"
    effect = effect_text(series, verdict.effect)
    return f"{verdict.metric} {effect}, {kind} (limit {series.limit.text})"
