"""The judge of launches in pairs, with a look after every five of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from gpubench_plugin.compare.plain import (
    at_once,
    exact,
    family,
    undecided,
    unusable,
    without_variance,
)
from gpubench_plugin.compare.series import Series, counted, percent
from gpubench_plugin.records import Verdict

if TYPE_CHECKING:
    from gpubench_plugin.compare.tested import Tested


LOOK: Final = 5
"""A look is taken after each so many pairs."""

PAIRS: Final = 15
"""After so many pairs nobody goes on unless asked to."""

UNCHANGED_FROM: Final = 10
"""Before so many pairs nothing is called unchanged unless asked to."""


def used_pairs(pairs: int) -> int:
    """How many of so many pairs are judged: those up to the last look, 0 of fewer than five.

    Pairs between two looks wait for the next one, so that nobody gains by looking after each pair.
    """
    return pairs // LOOK * LOOK


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
        why = f"{counted(pairs, 'pair')}: at least {LOOK} are needed"
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
        rest += f"; {waiting} more wait for the look at {sample.launches + LOOK}"
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
