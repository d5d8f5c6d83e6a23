"""The judges of a comparison: launches in pairs, a history of runs, or a plain threshold."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Final

from gpubench_plugin.compare.plain import (
    at_once,
    by_limit,
    exact,
    family,
    undecided,
    unusable,
    without_variance,
)
from gpubench_plugin.compare.series import FEWEST, Samples, Series, counted, percent
from gpubench_plugin.records import Verdict

if TYPE_CHECKING:
    from gpubench_plugin.compare.tested import Tested


LOOKS: Final = (5, 10, 15)
"""After how many pairs a look is taken; each of them has a third of the false alarms."""


def used_pairs(pairs: int) -> int:
    """How many of so many pairs are judged: the first 5 or 10, from 15 on all; 0 of fewer than 5.

    Pairs between two looks wait for the next one, so that nobody gains by looking after each pair.
    Beyond the last look there is none to wait for and all count: the error rate holds for a number
    of pairs that was fixed beforehand.
    """
    return pairs if pairs >= LOOKS[-1] else max((n for n in LOOKS if n <= pairs), default=0)


def judge_pairs(series: Sequence[Series], *, m: int | None = None) -> list[Verdict]:
    """One verdict per series, in order, of the look that its number of pairs has reached.

    Pairs are of fresh processes; a look is taken after 5, 10 and 15 of them.

    Args:
        series: base and head of each have the same length, in the order of the pairs.
        m: series of the whole suite that are judged by statistics, see :func:`plain.family`. Those
            that are not among `series`, since an earlier look has decided them, count as not
            rejected. Without it: those among `series`.
    """
    found = {number: plain for number, one in enumerate(series) if (plain := _plain_pairs(one))}
    tested = [number for number in range(len(series)) if number not in found]
    if tested:
        from gpubench_plugin.compare.tested import look, paired_sample

        samples = [
            paired_sample(series[number], used_pairs(len(series[number].head))) for number in tested
        ]
        looked = look(samples, max(m or 0, family(series)))
        found |= zip(tested, map(_verdict_of_pairs, looked), strict=True)
    return [found[number] for number in range(len(series))]


def _plain_pairs(series: Series) -> Verdict | None:
    if found := at_once(series):
        return found
    pairs, used = len(series.head), used_pairs(len(series.head))
    if len(series.base) != pairs:
        raise ValueError(f"{series.id}: {len(series.base)} values of the base, {pairs} of the head")
    for base, head in zip(series.base, series.head, strict=True):
        if problem := unusable(series, base, head):
            return problem
    if not used:
        why = f"{counted(pairs, 'pair')}: at least {LOOKS[0]} are needed"
        return undecided(series, "paired", why, launches=pairs)
    if without_variance(series):
        return exact(series, launches=pairs)
    # A zero beside a zero is no effect, but has no logarithm beside other pairs.
    zero = next((value for value in series.base if value <= 0), None)
    return None if zero is None else unusable(series, zero, None)


def _verdict_of_pairs(tested: Tested) -> Verdict:
    from gpubench_plugin.compare.plain import worse_bar
    from gpubench_plugin.compare.statistics import pairs_needed

    sample, series = tested.sample, tested.sample.series
    rest = f"{tested.finding}, {counted(sample.launches, 'pair')}, limit {series.limit.text}"
    if waiting := len(series.head) - sample.launches:
        following = next(n for n in LOOKS if n > sample.launches)
        rest += f"; {waiting} more wait for the look at {following}"
    if tested.kind != "inconclusive":
        return tested.verdict("paired", f"{rest}; could see ≥ {percent(tested.visible)}")
    needed = pairs_needed(
        float(sample.estimates.mean),
        sample.spread,
        sample.launches,
        worse=worse_bar(series.limit, series.better),
        at=tested.level,
    )
    advice = (
        f"about {needed} pairs needed" if needed else "too close to the limit for 200 pairs to tell"
    )
    return tested.verdict(
        "paired",
        f"launch noise {percent(sample.noise)}: could only see ≥ {percent(tested.visible)}; "
        f"{advice} ({rest})",
        pairs_needed=needed,
    )


ADVICE: Final = "`gpubench ab` is the way to know"


def judge_history(series: Sequence[Series], *, m: int | None = None) -> list[Verdict]:
    """One verdict per series, in order: the prediction t of its head beside the pinned level.

    It asks whether the head is one of the earlier runs: weak by nature, and the verdicts say so.

    Args:
        series: `base` holds one value per earlier run, `head` one per run that is judged.
        m: series of the whole suite, see :func:`judge_pairs`.
    """
    found = {number: plain for number, one in enumerate(series) if (plain := _plain_history(one))}
    tested = [number for number in range(len(series)) if number not in found]
    if tested:
        from gpubench_plugin.compare.tested import look, prediction_sample

        samples = [prediction_sample(series[i], Samples.of(series[i])) for i in tested]
        looked = look(samples, max(m or 0, family(series)))
        found |= zip(tested, map(_verdict_of_history, looked), strict=True)
    return [found[number] for number in range(len(series))]


def _plain_history(series: Series) -> Verdict | None:
    if found := at_once(series):
        return found
    samples = Samples.of(series)
    if len(series.base) >= FEWEST and (without_variance(series) or not samples.level):
        return exact(series, launches=len(series.base))
    if not (samples.level_tells or samples.steps_tell):
        return _too_few(series, samples)
    problems = (unusable(series, median(samples.level), head) for head in series.head)
    return next(filter(None, problems), None)


def _too_few(series: Series, samples: Samples) -> Verdict:
    unfit = len(series.base) - samples.count
    left_out = f" ({unfit} more had no positive value)" if unfit else ""
    least = f"at least {FEWEST} are needed"
    if samples.later:
        least = f"{FEWEST} pinned ones are needed, or {FEWEST - 1} later ones"
    why = f"{samples.words}{left_out}: {least}; {ADVICE}"
    return undecided(series, "history", why, launches=samples.count)


def _verdict_of_history(tested: Tested) -> Verdict:
    sample = tested.sample
    samples = Samples.of(sample.series)
    rest = f"{tested.finding}, {samples.words}, limit {sample.series.limit.text}"
    more = "" if samples.level_tells else " and with ten pinned less"
    sight = f"≥ {percent(tested.visible)}{more}, {ADVICE}"
    if tested.kind == "inconclusive":
        why = f"noise between runs {percent(sample.noise)}: could only see {sight} ({rest})"
        return tested.verdict("history", why)
    return tested.verdict("history", f"{rest}; history sees {sight}")


LABEL = "threshold, not statistical"


def judge_threshold(series: Sequence[Series]) -> list[Verdict]:
    """One verdict per series, in order: the median of the head against that of the level.

    It compares one value with one, for those who want it, and is not statistical.
    """
    return [_judged_by_threshold(one) for one in series]


def _judged_by_threshold(series: Series) -> Verdict:
    if found := at_once(series):
        return found
    if without_variance(series):
        return exact(series, launches=len(series.base))
    return by_limit(series, median(series.level), median(series.head), "threshold", LABEL, 1)
