"""The history gate: is this run one of the earlier ones? Weak by nature, and it says so."""

from __future__ import annotations

import math
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
from gpubench_plugin.compare.reasons import counted, percent
from gpubench_plugin.compare.series import Series
from gpubench_plugin.verdicts import Verdict

if TYPE_CHECKING:
    from gpubench_plugin.compare.tested import Tested

FEWEST: Final = 10
"""Earlier runs without which nothing is said: the spread of fewer is hardly known."""

ADVICE: Final = "`gpubench ab` is the way to know"


def judge(series: Sequence[Series], *, m: int | None = None) -> list[Verdict]:
    """One verdict per series, in order: the prediction t of its head among the earlier runs.

    Args:
        series: `base` holds one value per earlier run, `head` one per run that is judged.
        m: series of the whole suite, see :func:`paired.judge`.
    """
    found = {number: plain for number, one in enumerate(series) if (plain := _plain(one))}
    tested = [number for number in range(len(series)) if number not in found]
    if tested:
        from gpubench_plugin.compare.tested import look, prediction_sample

        samples = [prediction_sample(series[i], _earlier(series[i])) for i in tested]
        looked = look(samples, max(m or 0, family(series)))
        found |= zip(tested, map(_verdict, looked), strict=True)
    return [found[number] for number in range(len(series))]


def _earlier(series: Series) -> list[float]:
    """The earlier values that can be samples: one that is not positive has no logarithm."""
    return [value for value in series.base if math.isfinite(value) and value > 0]


def _plain(series: Series) -> Verdict | None:
    if found := at_once(series):
        return found
    if len(series.base) < FEWEST:
        return _too_few(series, len(series.base))
    if without_variance(series):
        return exact(series, launches=len(series.base))
    for head in series.head:
        if problem := unusable(series, 1.0, head):
            return problem
    earlier = len(_earlier(series))
    return _too_few(series, earlier) if earlier < FEWEST else None


def _too_few(series: Series, earlier: int) -> Verdict:
    unfit = len(series.base) - earlier
    left_out = f" ({unfit} more had no positive value)" if unfit else ""
    why = f"{counted(earlier, 'earlier run')}{left_out}: at least {FEWEST} are needed; {ADVICE}"
    return undecided(series, "history", why, launches=earlier)


def _verdict(tested: Tested) -> Verdict:
    sample = tested.sample
    rest = (
        f"{tested.finding}, {counted(sample.launches, 'earlier run')}, "
        f"limit {sample.series.limit.text}"
    )
    sight = f"≥ {percent(tested.visible)}, {ADVICE}"
    if tested.kind == "inconclusive":
        why = f"noise between runs {percent(sample.noise)}: could only see {sight} ({rest})"
        return tested.verdict("history", why)
    return tested.verdict("history", f"{rest}; history sees {sight}")
