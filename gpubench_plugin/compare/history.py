"""The history gate: is this run one of the earlier ones? Weak by nature, and it says so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
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

        samples = [prediction_sample(series[i], *_earlier(series[i])) for i in tested]
        looked = look(samples, max(m or 0, family(series)))
        found |= zip(tested, map(_verdict, looked), strict=True)
    return [found[number] for number in range(len(series))]


def _earlier(series: Series) -> tuple[list[float], int]:
    """The earlier values that count, and how many of them are the level: the first so many.

    One that is not positive has no logarithm. Where enough are pinned they alone count; where none
    is, as on a machine that the pinned runs do not know, the oldest is the level.
    """
    pinned = _fit(series.base[: series.pinned])
    if series.pinned is None or len(pinned) >= FEWEST:
        return pinned, len(pinned)
    return [*pinned, *_fit(series.base[series.pinned :])], max(len(pinned), 1)


def _fit(values: Sequence[float]) -> list[float]:
    return [value for value in values if math.isfinite(value) and value > 0]


def _plain(series: Series) -> Verdict | None:
    if found := at_once(series):
        return found
    if len(series.base) < FEWEST:
        return _too_few(series, len(series.base))
    if without_variance(series):
        return exact(series, launches=len(series.base))
    earlier, pinned = _earlier(series)
    if len(earlier) < FEWEST:
        return _too_few(series, len(earlier))
    for head in series.head:
        if problem := unusable(series, median(earlier[:pinned]), head):
            return problem
    return None


def _too_few(series: Series, earlier: int) -> Verdict:
    unfit = len(series.base) - earlier
    left_out = f" ({unfit} more had no positive value)" if unfit else ""
    why = f"{counted(earlier, 'earlier run')}{left_out}: at least {FEWEST} are needed; {ADVICE}"
    return undecided(series, "history", why, launches=earlier)


def _verdict(tested: Tested) -> Verdict:
    sample = tested.sample
    earlier, pinned = _earlier(sample.series)
    runs, more = counted(len(earlier), "earlier run"), ""
    if later := len(earlier) - pinned:
        runs, more = (
            f"{pinned} pinned and {counted(later, 'later run')}",
            " and with ten pinned less",
        )
    rest = f"{tested.finding}, {runs}, limit {sample.series.limit.text}"
    sight = f"≥ {percent(tested.visible)}{more}, {ADVICE}"
    if tested.kind == "inconclusive":
        why = f"noise between runs {percent(sample.noise)}: could only see {sight} ({rest})"
        return tested.verdict("history", why)
    return tested.verdict("history", f"{rest}; history sees {sight}")
