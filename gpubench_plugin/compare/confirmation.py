"""Confirmation of alarms: regressed benchmarks are relaunched, and the median is judged.

A history cannot tell a slow launch from slow code; the median of four launches can, where each of
the three that follow is slow, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, Unpack

from gpubench_plugin.compare.comparison import MatchOptions, compare_history
from gpubench_plugin.compare.matched_metrics import value_of
from gpubench_plugin.compare.matching import match, restricted_to
from gpubench_plugin.compare.threshold import effect_of, family_size
from gpubench_plugin.config.limits import Limit
from gpubench_plugin.core.format import counted, quantity
from gpubench_plugin.core.records import Run
from gpubench_plugin.core.verdicts import Comparison, Verdict

# Of a benchmark with an alarm: the fewest with which at most 1% of equal suites alarm where a tenth
# of the launches is slow; two leave 2.7% (docs/evidence/history_gate.md).
RELAUNCHES: Final = 3


def alarms(comparison: Comparison) -> tuple[str, ...]:
    """Ids of the benchmarks with a metric that the history judge calls regressed."""
    return tuple(dict.fromkeys(v.id for v in comparison.verdicts if _is_alarm(v)))


def withdraw_alarms(
    comparison: Comparison, reason: str | Mapping[str, str], *, adopted: Collection[str] = ()
) -> Comparison:
    """Append `reason`, or that of each id, to the alarms that could not be confirmed.

    Their verdicts stay "regressed", but for `adopted` tests, whose single runs vary most.
    """
    reasons = dict.fromkeys(alarms(comparison), reason) if isinstance(reason, str) else reason

    def withdrawn(verdict: Verdict) -> Verdict:
        if not _is_alarm(verdict) or verdict.id not in reasons:
            return verdict
        stands = verdict.id not in adopted
        text = f"{'' if stands else 'not confirmed: '}{verdict.reason}; {reasons[verdict.id]}"
        return replace(verdict, kind="regressed" if stands else "inconclusive", reason=text)

    return replace(comparison, verdicts=tuple(map(withdrawn, comparison.verdicts)))


def rejudge(
    comparison: Comparison,
    earlier_runs: Sequence[Run],
    head: Run,
    repeat_runs: Sequence[Run],
    **options: Unpack[MatchOptions],
) -> Comparison:
    """Rejudge with the relaunches `repeat_runs`; the new verdicts replace the alarms.

    A benchmark missing from one of them keeps its verdicts. `options` are those of `comparison`.
    """
    names = set(alarms(comparison)).intersection(*(run.results for run in repeat_runs))
    rejudged = compare_history(
        [restricted_to(run, names) for run in earlier_runs],
        restricted_to(head, names),
        repeat_runs=[restricted_to(run, names) for run in repeat_runs],
        m=family_size(match(earlier_runs, [head], paired=False, **options).series),
        **options,
    )
    verdicts = {
        (v.id, metric): v
        for v in rejudged.verdicts
        for metric in (v.metric, *(part.metric for part in v.parts))
    }
    lost = {
        v.id: f"relaunched, it is {v.kind.replace('_', ' ')}: {v.reason}"
        for v in rejudged.verdicts
        if not v.metric
    }
    remaining = withdraw_alarms(comparison, lost)
    return replace(
        remaining,
        verdicts=tuple(
            _with_repeats(verdicts[v.id, v.metric], repeat_runs)
            if _is_alarm(v) and (v.id, v.metric) in verdicts
            else v
            for v in remaining.verdicts
        ),
    )


def _is_alarm(verdict: Verdict) -> bool:
    return verdict.kind == "regressed" and verdict.method == "history"


def is_confirmed(verdict: Verdict, relaunched: Sequence[float]) -> bool:
    """Whether a `verdict` on the median is "regressed", and no relaunch alone is within the limit.

    A benchmark that is slow in some of its launches is within it in others.
    """
    if verdict.kind != "regressed" or not verdict.base:
        return verdict.kind == "regressed"
    effects = (effect_of(verdict.base, value, verdict.better) for value in relaunched)
    return min(effects) > Limit.parse(verdict.limit, verdict.metric).bound


def _with_repeats(verdict: Verdict, repeat_runs: Sequence[Run]) -> Verdict:
    """The verdict on the median, with the values of the relaunches in its reason."""
    values = [value_of(run.results[verdict.id], verdict.metric) for run in repeat_runs]
    relaunched = [value for value in values if value is not None]
    evidence = ", ".join(quantity(value, verdict.unit) for value in relaunched)
    launches = counted(len(repeat_runs), "more launch")
    if is_confirmed(verdict, relaunched):
        return replace(verdict, reason=f"confirmed by {launches} ({evidence}): {verdict.reason}")
    kind = "inconclusive" if verdict.kind == "regressed" else verdict.kind
    reason = f"not confirmed by {launches} ({evidence}): {verdict.reason}"
    return replace(verdict, kind=kind, reason=reason)
