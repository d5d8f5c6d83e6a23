"""Judgement of paired launches, with a look after every five pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gpubench_plugin.compare.launch_values import LaunchValues
from gpubench_plugin.compare.looks import (
    LOOK,
    MOST_PAIRS,
    UNCHANGED_FROM,
    false_discovery_rate,
    undetected_share,
    used_pairs,
)
from gpubench_plugin.compare.threshold import (
    exact_verdict,
    family_size,
    has_no_variance,
    inconclusive_verdict,
    trivial_verdict,
    unusable,
    worse_bar,
)
from gpubench_plugin.core.format import change_percentage, counted
from gpubench_plugin.core.verdicts import Verdict

if TYPE_CHECKING:
    from gpubench_plugin.compare.t_tests import Sample, TTestResult


def judge_pairs(
    series: Sequence[LaunchValues],
    *,
    m: int | None = None,
    decided_series: Sequence[LaunchValues] = (),
    unchanged_from: int = UNCHANGED_FROM,
) -> list[Verdict]:
    """One verdict per series, in order, at the look that its number of pairs has reached.

    Pairs are of fresh processes; a look is taken after every five of them.

    Args:
        series: base and head of each have the same length, in pair order.
        m: series of the whole suite that need statistics, see :func:`.threshold.family_size`; those
            not among `series` and `decided_series` count as not rejected.
        decided_series: series decided by earlier looks, with the pairs used then.
        unchanged_from: pairs required for "unchanged".
    """
    trivial = [_trivial_verdict(item, unchanged_from) for item in series]
    tested = [item for item, verdict in zip(series, trivial, strict=True) if verdict is None]
    results: list[TTestResult] = []
    if tested:
        from gpubench_plugin.compare.t_tests import paired_samples, run_tests

        pairs = [used_pairs(len(item.head)) for item in tested]
        # Series judged without statistics carry no noise: their values may be zero, or unpaired.
        decided = [item for item in decided_series if not _trivial_verdict(item, 0)]
        results = run_tests(
            paired_samples(tested, pairs, decided),
            max(m or 0, family_size((*series, *decided_series))),
            q=false_discovery_rate(max(pairs) // LOOK),
            unchanged_from=unchanged_from,
        )
    verdicts = (_verdict_of_pairs(result, unchanged_from) for result in results)
    return [verdict or next(verdicts) for verdict in trivial]


def _trivial_verdict(series: LaunchValues, unchanged_from: int) -> Verdict | None:
    if trivial := trivial_verdict(series):
        return trivial
    pairs = len(series.head)
    is_exact = series.is_amount and has_no_variance(series)  # which may be of nothing
    for base, head in () if is_exact else zip(series.base, series.head, strict=True):
        if unusable_verdict := unusable(series, base, head):
            return unusable_verdict
    if not used_pairs(pairs):
        cause = f"{counted(pairs, 'pair')}: at least {LOOK} are needed"
        return inconclusive_verdict(series, "paired", cause, launches=pairs)
    if has_no_variance(series):
        return _exact_pairs(series, unchanged_from)
    # Zero on both sides is no effect, but has no logarithm to average with other pairs.
    non_positive = next((value for value in series.base if value <= 0), None)
    return None if non_positive is None else unusable(series, non_positive, None)


def _exact_pairs(series: LaunchValues, unchanged_from: int) -> Verdict:
    """Like :func:`.threshold.exact_verdict`, but "unchanged" takes enough pairs."""
    pairs = len(series.head)
    verdict = exact_verdict(series, launches=pairs)
    if verdict.kind != "unchanged":
        return verdict
    cause = _undetected_text(pairs, "worse")
    if pairs >= unchanged_from:
        return replace(verdict, reason=f"{verdict.reason}; {cause}")
    reason = f"{verdict.reason}; {_not_yet_unchanged(cause, unchanged_from)}"
    return replace(verdict, kind="inconclusive", reason=reason, pairs_needed=unchanged_from)


def _undetected_text(pairs: int, direction: str) -> str:
    share = change_percentage(undetected_share(pairs))
    return f"up to {share} of launches could be {direction} and go undetected"


def _not_yet_unchanged(undetected: str, unchanged_from: int) -> str:
    return f'not worse so far, but {undetected}: "unchanged" requires {unchanged_from} pairs'


def _verdict_of_pairs(tested: TTestResult, unchanged_from: int) -> Verdict:
    sample, series = tested.sample, tested.sample.series
    details = f"{tested.effect_text}, {counted(sample.launches, 'pair')}, limit {series.limit.text}"
    if unjudged := len(series.head) - sample.launches:
        details += f"; {unjudged} more are judged once there are {sample.launches + LOOK}"
    undetected_text = _undetected_text(sample.launches, "slow")
    if tested.kind == "unchanged":
        return tested.verdict("paired", f"{details}; {undetected_text}")
    if tested.kind != "inconclusive":
        power = f"effects from {change_percentage(tested.detectable)} on are detected"
        return tested.verdict("paired", f"{details}; {power}")
    needed_pairs = _pairs_needed(tested, unchanged_from)
    outlook = f"about {needed_pairs} pairs needed" if needed_pairs else ""
    if tested.is_unchanged:
        reason = f"{details}; {_not_yet_unchanged(undetected_text, unchanged_from)}"
    elif cause := tested.noise_text("launches"):
        reason = "; ".join(filter(None, (cause, outlook)))
    else:
        power = f"effects from {change_percentage(tested.detectable)} on would be detected"
        outlook = outlook or f"too close to the limit to be decided within {MOST_PAIRS} pairs"
        reason = f"{details}; launch noise {_noise_text(sample)}: {power}; {outlook}"
    return tested.verdict("paired", reason, pairs_needed=needed_pairs)


def _noise_text(sample: Sample) -> str:
    """Noise of a launch, and the value assumed for it in a noisier suite."""
    if sample.floor <= sample.spread:
        return change_percentage(sample.noise)
    assumed = change_percentage(sample.floor / math.sqrt(2))  # as the noise is of the spread
    return f"{change_percentage(sample.noise)}, assumed {assumed} since the suite is noisier"


def _pairs_needed(tested: TTestResult, unchanged_from: int) -> int | None:
    from gpubench_plugin.compare.statistics import pairs_needed

    sample, own_pairs = tested.sample, tested.sample.estimates.own_pairs
    own_error = float(own_pairs.error) * math.sqrt(sample.launches) if own_pairs else sample.spread
    return pairs_needed(
        float(sample.estimates.mean),
        sample.spread,
        sample.launches,
        worse=worse_bar(sample.series.limit, sample.series.better),
        at=tested.level,
        unchanged_from=unchanged_from,
        own_error=own_error,
        shared=float(sample.estimates.dof) - (sample.launches - 1),
        least=sample.floor,
    )
