"""The judge of launches in pairs, with a look after every five of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gpubench_plugin.compare.looks import (
    LOOK,
    MOST_PAIRS,
    UNCHANGED_FROM,
    rate_of_look,
    unseen,
    used_pairs,
)
from gpubench_plugin.compare.plain import (
    at_once,
    exact,
    family,
    undecided,
    unusable,
    without_variance,
    worse_bar,
)
from gpubench_plugin.compare.series import Series, percent
from gpubench_plugin.environment import counted
from gpubench_plugin.records import Verdict

if TYPE_CHECKING:
    from gpubench_plugin.compare.tested import Sample, Tested


def judge_pairs(
    series: Sequence[Series],
    *,
    m: int | None = None,
    decided: Sequence[Series] = (),
    unchanged_from: int = UNCHANGED_FROM,
) -> list[Verdict]:
    """One verdict per series, in order, of the look that its number of pairs has reached.

    Pairs are of fresh processes; a look is taken after every five of them.

    Args:
        series: base and head of each have the same length, in the order of the pairs.
        m: series of the whole suite that are judged by statistics, see :func:`plain.family`. Those
            that are not among `series`, since an earlier look has decided them, count as not
            rejected. Without it: those among `series` and `decided`.
        decided: series of the suite that earlier looks have decided, with the pairs that they were
            decided by.
        unchanged_from: nothing is called unchanged by fewer pairs.
    """
    plain = {
        number: verdict
        for number, one in enumerate(series)
        if (verdict := _plain_pairs(one, unchanged_from))
    }
    open_ = [one for number, one in enumerate(series) if number not in plain]
    if not open_:
        return list(plain.values())
    from gpubench_plugin.compare.tested import look, paired_samples

    pairs = [used_pairs(len(one.head)) for one in open_]
    looks = look(
        # What needs no statistics tells nothing of noise: its values may be zero, or no pairs.
        paired_samples(open_, pairs, [one for one in decided if not _plain_pairs(one, 0)]),
        max(m or 0, family((*series, *decided))),
        q=rate_of_look(max(pairs) // LOOK),
        unchanged_from=unchanged_from,
    )
    verdicts = iter([_verdict_of_pairs(one, unchanged_from) for one in looks])
    return [plain.get(number) or next(verdicts) for number in range(len(series))]


def _plain_pairs(series: Series, unchanged_from: int) -> Verdict | None:
    if found := at_once(series):
        return found
    pairs, used = len(series.head), used_pairs(len(series.head))
    if len(series.base) != pairs:
        raise ValueError(f"{series.id}: {len(series.base)} values of the base, {pairs} of the head")
    for base, head in zip(series.base, series.head, strict=True):
        if problem := unusable(series, base, head):
            return problem
    if not used:
        why = f"{counted(pairs, 'pair')}: at least {LOOK} are needed"
        return undecided(series, "paired", why, launches=pairs)
    if without_variance(series):
        return _exact_pairs(series, unchanged_from)
    # A zero beside a zero is no effect, but has no logarithm beside other pairs.
    zero = next((value for value in series.base if value <= 0), None)
    return None if zero is None else unusable(series, zero, None)


def _exact_pairs(series: Series, unchanged_from: int) -> Verdict:
    """As :func:`plain.exact`; but a few launches that never vary do not know those to come."""
    pairs = len(series.head)
    verdict = exact(series, launches=pairs)
    if verdict.kind != "unchanged":
        return verdict
    if pairs >= unchanged_from:
        return replace(verdict, reason=f"{verdict.reason}; {_hidden(pairs, 'worse')}")
    why = f"not worse so far, but {_hidden(pairs, 'worse')}: unchanged is said from"
    reason = f"{why} {unchanged_from} pairs on ({verdict.reason})"
    return replace(verdict, kind="inconclusive", reason=reason, pairs_needed=unchanged_from)


def _hidden(pairs: int, how: str) -> str:
    return f"up to {percent(unseen(pairs))} of launches could be {how} unseen"


def _verdict_of_pairs(tested: Tested, unchanged_from: int) -> Verdict:
    sample, series = tested.sample, tested.sample.series
    rest = f"{tested.finding}, {counted(sample.launches, 'pair')}, limit {series.limit.text}"
    if waiting := len(series.head) - sample.launches:
        rest += f"; {waiting} more wait for the look at {sample.launches + LOOK}"
    hidden = _hidden(sample.launches, "slow")
    if tested.kind == "unchanged":
        return tested.verdict("paired", f"{rest}; {hidden}")
    if tested.kind != "inconclusive":
        return tested.verdict("paired", f"{rest}; could see ≥ {percent(tested.visible)}")
    needed = _pairs_needed(tested, unchanged_from)
    if tested.cleared:
        why = f"not worse so far, but {hidden}: unchanged is said from {unchanged_from} pairs on"
        return tested.verdict("paired", f"{why} ({rest})", pairs_needed=needed)
    advice = (
        f"about {needed} pairs needed"
        if needed
        else f"too close to the limit for {MOST_PAIRS} pairs to tell"
    )
    why = f"launch noise {_noise(sample)}: could only see ≥ {percent(tested.visible)}"
    return tested.verdict("paired", f"{why}; {advice} ({rest})", pairs_needed=needed)


def _noise(sample: Sample) -> str:
    """That of a launch; what it is taken for beside others that are far louder is said too."""
    if sample.least <= sample.spread:
        return percent(sample.noise)
    taken = percent(sample.least / math.sqrt(2))  # as the noise is of the spread
    return f"{percent(sample.noise)}, taken for {taken} in a louder suite"


def _pairs_needed(tested: Tested, unchanged_from: int) -> int | None:
    from gpubench_plugin.compare.statistics import pairs_needed

    sample, own = tested.sample, tested.sample.estimates.own
    return pairs_needed(
        float(sample.estimates.mean),
        sample.spread,
        sample.launches,
        worse=worse_bar(sample.series.limit, sample.series.better),
        at=tested.level,
        unchanged_from=unchanged_from,
        own=float(own.error) * math.sqrt(sample.launches) if own else sample.spread,
        shared=float(sample.estimates.freedom) - (sample.launches - 1),
        least=sample.least,
    )
