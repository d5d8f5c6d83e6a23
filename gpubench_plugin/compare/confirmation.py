"""Confirmation of alarms: regressed benchmarks are launched again and rejudged.

A history cannot tell a slow launch from slow code. Two more launches can: the median of the three
is judged, by the same test.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, Unpack

from gpubench_plugin.compare.comparison import MatchOptions, compare_history
from gpubench_plugin.compare.matched_metrics import value_of
from gpubench_plugin.compare.matching import match
from gpubench_plugin.compare.plain import family_size
from gpubench_plugin.environment import counted
from gpubench_plugin.records import Comparison, Run, Verdict

AGAIN: Final = 2
"""How often a benchmark with an alarm is launched again."""


def alarms(comparison: Comparison) -> tuple[str, ...]:
    """Benchmarks with a metric that the history judge calls regressed."""
    return tuple(dict.fromkeys(v.id for v in comparison.verdicts if _is_alarm(v)))


def withdraw_alarms(comparison: Comparison, reason: str | Mapping[str, str]) -> Comparison:
    """Withdraw alarms, all or those of the ids in `reason`, appending the reason given.

    They stand: nobody knows better.
    """
    reasons = dict.fromkeys(alarms(comparison), reason) if isinstance(reason, str) else reason
    return replace(
        comparison,
        verdicts=tuple(
            replace(v, reason=f"{v.reason}; {reasons[v.id]}")
            if _is_alarm(v) and v.id in reasons
            else v
            for v in comparison.verdicts
        ),
    )


def rejudge(
    comparison: Comparison,
    earlier_runs: Sequence[Run],
    head: Run,
    repeat_runs: Sequence[Run],
    **options: Unpack[MatchOptions],
) -> Comparison:
    """Rejudge with further launches; the new verdicts replace the alarms.

    Args:
        comparison: of `earlier_runs` and `head`.
        earlier_runs: the runs of the history.
        head: the run that was judged.
        repeat_runs: the further launches; a benchmark that is not in all of them keeps its
            verdicts.
        options: as the comparison was made with.
    """
    names = set(alarms(comparison)).intersection(*(run.results for run in repeat_runs))
    rejudged = compare_history(
        [_restricted_to(run, names) for run in earlier_runs],
        _restricted_to(head, names),
        repeat_runs=[_restricted_to(run, names) for run in repeat_runs],
        m=family_size(match(earlier_runs, [head], paired=False, **options).series),
        **options,
    )
    verdicts = {number: v for v in rejudged.verdicts for number in _judged_metrics(v)}
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


def _judged_metrics(verdict: Verdict) -> set[tuple[str, str]]:
    """The metric, or parts of a step time, that the verdict is about."""
    return {
        (verdict.id, name) for name in (verdict.metric, *(part.metric for part in verdict.parts))
    }


def _is_alarm(verdict: Verdict) -> bool:
    return verdict.kind == "regressed" and verdict.method == "history"


def _restricted_to(run: Run, names: Collection[str]) -> Run:
    return replace(run, results={i: r for i, r in run.results.items() if i in names})


def _with_repeats(verdict: Verdict, repeat_runs: Sequence[Run]) -> Verdict:
    """Rewrite the verdict on the median with the values of the further launches."""
    values = [value_of(run.results[verdict.id], verdict.metric) for run in repeat_runs]
    values_text = " and ".join(f"{value:.4g}" for value in values if value is not None)
    evidence = (
        f"by {counted(len(repeat_runs), 'more launch')} ({f'{values_text} {verdict.unit}'.strip()})"
    )
    outcome = "confirmed" if verdict.kind == "regressed" else "not confirmed"
    return replace(verdict, reason=f"{outcome} {evidence}: {verdict.reason}")
