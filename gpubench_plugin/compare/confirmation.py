"""The confirmation of alarms: what a history calls regressed is launched again and judged anew.

A history cannot tell a slow launch from slow code. Two more launches can: the median of the three
is judged, by the same test.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, Unpack

from gpubench_plugin.compare.comparison import Options, compare_history
from gpubench_plugin.compare.matched_metrics import value_of
from gpubench_plugin.compare.matching import match
from gpubench_plugin.compare.plain import family
from gpubench_plugin.environment import counted
from gpubench_plugin.records import Comparison, Run, Verdict

AGAIN: Final = 2
"""How often a benchmark with an alarm is launched again."""


def alarms(comparison: Comparison) -> tuple[str, ...]:
    """The benchmarks of which a history calls a metric regressed."""
    return tuple(dict.fromkeys(one.id for one in comparison.verdicts if _is_alarm(one)))


def unconfirmed(comparison: Comparison, why: str | Mapping[str, str]) -> Comparison:
    """The same verdicts; alarms, all or those of the ids in `why`, end with what it says of them.

    They stand: nobody knows better.
    """
    reasons = dict.fromkeys(alarms(comparison), why) if isinstance(why, str) else why
    return replace(
        comparison,
        verdicts=tuple(
            replace(one, reason=f"{one.reason}; {reasons[one.id]}")
            if _is_alarm(one) and one.id in reasons
            else one
            for one in comparison.verdicts
        ),
    )


def confirmed(
    comparison: Comparison,
    earlier: Sequence[Run],
    head: Run,
    again: Sequence[Run],
    **options: Unpack[Options],
) -> Comparison:
    """The verdicts after further launches, which take the place of the alarms that they are about.

    Args:
        comparison: of `earlier` and `head`.
        earlier: the runs of the history.
        head: the run that was judged.
        again: the further launches; a benchmark that is not in all of them keeps its verdicts.
        options: as the comparison was made with.
    """
    names = set(alarms(comparison)).intersection(*(run.results for run in again))
    anew = compare_history(
        [_only(run, names) for run in earlier],
        _only(head, names),
        again=[_only(run, names) for run in again],
        m=family(match(earlier, [head], paired=False, **options).series),
        **options,
    )
    verdicts = {number: one for one in anew.verdicts for number in _numbers(one)}
    without = {
        one.id: f"launched again, it is {one.kind.replace('_', ' ')}: {one.reason}"
        for one in anew.verdicts
        if not one.metric
    }
    standing = unconfirmed(comparison, without)
    return replace(
        standing,
        verdicts=tuple(
            _second(verdicts[one.id, one.metric], again)
            if _is_alarm(one) and (one.id, one.metric) in verdicts
            else one
            for one in standing.verdicts
        ),
    )


def _numbers(verdict: Verdict) -> set[tuple[str, str]]:
    """What it is about: a metric, or all parts of a step time, of which any may decide."""
    return {(verdict.id, name) for name in (verdict.metric, *(one.metric for one in verdict.parts))}


def _is_alarm(verdict: Verdict) -> bool:
    return verdict.kind == "regressed" and verdict.method == "history"


def _only(run: Run, names: Collection[str]) -> Run:
    return replace(run, results={i: one for i, one in run.results.items() if i in names})


def _second(verdict: Verdict, again: Sequence[Run]) -> Verdict:
    """The verdict on the median, with what the further launches took."""
    values = [value_of(run.results[verdict.id], verdict.metric) for run in again]
    shown = " and ".join(f"{value:.4g}" for value in values if value is not None)
    by = f"by {counted(len(again), 'more launch')} ({f'{shown} {verdict.unit}'.strip()})"
    what = "confirmed" if verdict.kind == "regressed" else "not confirmed"
    return replace(verdict, reason=f"{what} {by}: {verdict.reason}")
