"""Confirmation of alarms: regressed benchmarks are relaunched, and the median is judged.

A history cannot tell a slow launch from slow code; the median of four launches can, where each of
the three that follow is slow, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, Unpack

from gpubench_plugin.compare.comparison import compare_history
from gpubench_plugin.compare.matching import MatchOptions, match, restricted_to
from gpubench_plugin.compare.threshold import family_size
from gpubench_plugin.core.records import Run
from gpubench_plugin.core.verdicts import Comparison, Verdict

# Of a benchmark with an alarm: the fewest with which at most 1% of equal suites alarm where a tenth
# of the launches is slow, or half of them (docs/evidence/history_gate.md); two left 2.7%.
RELAUNCHES: Final = 3


def alarms(comparison: Comparison) -> tuple[str, ...]:
    """Ids of the benchmarks with a metric that the history judge calls regressed.

    Or slower, though in doubt: a head in doubt decides nothing, but its relaunches may.
    """
    return tuple(dict.fromkeys(v.id for v in comparison.verdicts if _is_alarm(v)))


def withdraw_alarms(
    comparison: Comparison, reason: str | Mapping[str, str], *, adopted: Collection[str] = ()
) -> Comparison:
    """Append `reason`, or that of each id, to the alarms that could not be confirmed.

    Their verdicts stay as they are, but for `adopted` tests, whose single runs vary most.
    """
    reasons = dict.fromkeys(alarms(comparison), reason) if isinstance(reason, str) else reason
    verdicts = (
        _withdrawn(v, reasons[v.id], adopted) if _is_alarm(v) and v.id in reasons else v
        for v in comparison.verdicts
    )
    return replace(comparison, verdicts=tuple(verdicts))


def rejudge(
    comparison: Comparison,
    earlier_runs: Sequence[Run],
    head: Run,
    repeat_runs: Sequence[Run],
    *,
    adopted: Collection[str] = (),
    **options: Unpack[MatchOptions],
) -> Comparison:
    """Rejudge with the relaunches `repeat_runs`; the new verdicts replace the alarms.

    A benchmark missing from one of them keeps its verdicts; an alarm on what one did not measure,
    or measured otherwise, is withdrawn. `options` are those of `comparison`.
    """
    names = set(alarms(comparison)).intersection(*(run.results for run in repeat_runs))
    rejudged = compare_history(
        [restricted_to(run, names) for run in earlier_runs],
        restricted_to(head, names),
        repeat_runs=[restricted_to(run, names) for run in repeat_runs],
        m=family_size(match(earlier_runs, [head], paired=False, **options).series),
        **options,
    )

    def renewed(alarm: Verdict) -> Verdict:
        reason = f"relaunched, but without {alarm.metric}"
        verdicts = [v for v in rejudged.verdicts if v.id == alarm.id]
        if verdicts and not verdicts[0].metric:
            reason = f"relaunched, it is {verdicts[0].kind.replace('_', ' ')}: {verdicts[0].reason}"
        elif all(alarm.metric in run.results[alarm.id].metrics for run in repeat_runs):
            for verdict in verdicts:
                if _metrics(verdict) & _metrics(alarm):
                    return verdict
        return _withdrawn(alarm, reason, adopted)

    verdicts = (renewed(v) if _is_alarm(v) and v.id in names else v for v in comparison.verdicts)
    return replace(comparison, verdicts=tuple(verdicts))


def _is_alarm(verdict: Verdict) -> bool:
    is_in_doubt = bool(verdict.doubts) and "base" not in verdict.doubts
    is_slower = verdict.interval is not None and verdict.interval[0] > 0
    is_doubted = verdict.kind == "inconclusive" and is_in_doubt and is_slower
    return verdict.method == "history" and (verdict.kind == "regressed" or is_doubted)


def _metrics(verdict: Verdict) -> set[str]:
    return {verdict.metric, *(part.metric for part in verdict.parts)}


def _withdrawn(alarm: Verdict, reason: str, adopted: Collection[str]) -> Verdict:
    text = f"{alarm.reason}; {reason}"
    if alarm.id in adopted:
        return replace(alarm, kind="inconclusive", reason=f"not confirmed: {text}")
    return replace(alarm, reason=text)
