"""Verdicts that need no statistics, and effects as fractions and as log ratios.

Such verdicts come from fixed bounds, from values without variance, and from values without a
meaningful ratio. Effects are positive where the head is worse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any, Final

from gpubench_plugin.compare.series import Series, change
from gpubench_plugin.config import Limit
from gpubench_plugin.records import Better, Method, Verdict, VerdictKind

_MOST: Final = 700.0
"""The log ratio at which effects end, shortly before their exponential overflows."""


def log_ratio(base: float, head: float, better: Better) -> float:
    """How much worse `head` is, as a logarithm; both must be positive. Always finite."""
    before, now = (head, base) if better == "higher" else (base, head)
    ratio = now / before
    if 0 < ratio < math.inf:  # more exact than a difference of two large logarithms
        return math.log(ratio)
    return math.log(now) - math.log(before)


def fraction(log_effect: float, better: Better) -> float:
    """The effect of a log ratio: head/base − 1, or 1 − head/base where higher is better."""
    bounded = min(max(log_effect, -_MOST), _MOST)
    return -math.expm1(-bounded) if better == "higher" else math.expm1(bounded)


def effect_of(base: float, head: float, better: Better) -> float:
    """The effect between two values; `base` is not zero. Always finite."""
    effect = (base - head) / base if better == "higher" else (head - base) / base
    return min(max(effect, -math.exp(_MOST)), math.exp(_MOST))


def worse_bar(limit: Limit, better: Better) -> float:
    """The log ratio at which the effect is as bad as a relative `limit`."""
    return -math.log1p(-limit.bound) if better == "higher" else math.log1p(limit.bound)


def better_bar(limit: Limit, better: Better) -> float:
    """The log ratio, negative, at which the effect is as good as a relative `limit` is bad."""
    return -math.log1p(limit.bound) if better == "higher" else math.log1p(-limit.bound)


def verdict(
    series: Series,
    kind: VerdictKind,
    method: Method | None,
    reason: str,
    **numbers: Any,
) -> Verdict:
    """A verdict about `series`; `numbers` are further fields of :class:`Verdict`."""
    return Verdict(
        id=series.id,
        metric=series.metric,
        unit=series.unit,
        better=series.better,
        kind=kind,
        method=method,
        limit=series.limit.text,
        reason=reason,
        **numbers,
    )


def at_once(series: Series) -> Verdict | None:
    """The verdict that needs no base, or says why there can be none; None where judging goes on."""
    if not series.head:
        return verdict(series, "not_measured", None, f"the head has no value of {series.metric}")
    if wrong := [value for value in series.head if not math.isfinite(value)]:
        return verdict(series, "errored", None, f"the head's {series.metric} is {wrong[0]}")
    if series.limit.kind != "relative":
        return _absolute(series)
    if series.better == "none":
        return verdict(
            series,
            "errored",
            None,
            f"{series.metric} has no better direction, so that {series.limit.text} means nothing; "
            "state a fixed bound such as '<=0.25'",
        )
    if not series.base:
        return verdict(series, "no_baseline", None, f"the base has no value of {series.metric}")
    return None


def without_variance(series: Series) -> bool:
    """Whether neither side varies, as far as several values on the base's side can show it."""
    return len(series.base) > 1 and len({*series.base}) == 1 and len({*series.head}) == 1


def undecided(
    series: Series, method: Method, why: str, *, launches: int, runs_needed: int | None = None
) -> Verdict:
    """The verdict where there are too few launches to say more than the medians of both sides."""
    base, head = _median(series.base), median(series.head)
    effect = effect_of(base, head, series.better) if base is not None and head > 0 else None
    if base is not None:
        why += f"; medians {base:.4g} and {head:.4g} {series.unit}".rstrip()
    if effect is not None:
        why += f": {change(series, effect)}"
    return verdict(
        series,
        "inconclusive",
        method,
        why,
        base=base,
        head=head,
        effect=effect,
        launches=launches,
        runs_needed=runs_needed,
    )


def family(series: Sequence[Series]) -> int:
    """How many of the `series` are judged by statistics: what `m` is of a whole suite."""
    return sum(not at_once(one) and not without_variance(one) for one in series)


def exact(series: Series, *, launches: int) -> Verdict:
    """The verdict about values that never vary."""
    base, head = series.base[0], series.head[0]
    return by_limit(series, base, head, "exact", "no variance: compared exactly", launches)


def by_limit(
    series: Series, base: float, head: float, method: Method, how: str, launches: int
) -> Verdict:
    """The verdict of the limit alone about one value on each side; `how` ends the reason."""
    if problem := unusable(series, base, head):
        return problem
    effect = 0.0 if base == head else effect_of(base, head, series.better)
    bound = series.limit.bound
    kind: VerdictKind = (
        "regressed" if effect >= bound else "improved" if effect <= -bound else "unchanged"
    )
    if kind == "regressed" and series.loose and method == "threshold":
        kind, how = "inconclusive", f"{how}; one total says little on a clock of the host"
    elif kind == "improved" and series.loose and method == "threshold":
        kind = "unchanged"  # nor does a base that others held up make the head a faster one
    reason = f"{change(series, effect)}, limit {series.limit.text}; {how}"
    return verdict(
        series, kind, method, reason, base=base, head=head, effect=effect, launches=launches
    )


def unusable(series: Series, base: float | None, head: float | None) -> Verdict | None:
    """The verdict where a ratio of the two has no meaning; None where it has one.

    Of a side that is None nothing is asked, nor said.
    """
    for side, value in (("base", base), ("head", head)):
        if value is not None and (not math.isfinite(value) or (value <= 0 and base != head)):
            return verdict(
                series,
                "errored",
                None,
                f"the {side}'s {series.metric} is {value:g}: {series.limit.text} of it means "
                "nothing" + ("; state a fixed bound such as '<=0.25'" if value <= 0 else ""),
                base=_finite(base),
                head=_finite(head),
            )
    return None


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _median(values: Sequence[float]) -> float | None:
    """Of those that a ratio can be made with; None where there are none."""
    fit = [value for value in values if math.isfinite(value) and value > 0]
    return median(fit) if fit else None


def _absolute(series: Series) -> Verdict:
    head, bound = median(series.head), series.limit.bound
    broken = head > bound if series.limit.kind == "at_most" else head < bound
    base = [value for value in series.base if math.isfinite(value)]
    reason = f"{head:.4g} {series.unit} {'breaks' if broken else 'keeps'} {series.limit.text}"
    return verdict(
        series,
        "regressed" if broken else "unchanged",
        "absolute",
        f"{reason}; a fixed bound, the base does not count",
        base=median(base) if base else None,
        head=head,
        launches=len(series.head),
    )


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
