"""Verdicts that need no statistics; effects as fractions and log ratios.

Such verdicts come from fixed bounds, from values without variance, and from values without a
meaningful ratio. Effects are positive where the head is worse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any, Final

from gpubench_plugin.compare.launch_values import LaunchValues, effect_text, has_logarithm
from gpubench_plugin.config.limits import Limit
from gpubench_plugin.core.format import quantity
from gpubench_plugin.core.records import Better
from gpubench_plugin.core.verdicts import Method, Verdict, VerdictKind

# The largest log ratio of an effect: a float's exponential overflows from 709.8 on.
_MOST: Final = 700.0
MEDIANS: Final = "medians "  # begin of the clause that has both values, for readers without a table
_BOUND_HINT: Final = "; use an absolute bound such as '<=0.25'"


def log_ratio(base: float, head: float, better: Better) -> float:
    """Log ratio of how much worse `head` is; both must be positive; always finite."""
    denominator, numerator = (head, base) if better == "higher" else (base, head)
    ratio = numerator / denominator
    if 0 < ratio < math.inf:  # more exact than a difference of two large logarithms
        return math.log(ratio)
    return math.log(numerator) - math.log(denominator)


def fraction(log_effect: float, better: Better) -> float:
    """Effect of a log ratio: head/base − 1, or 1 − head/base if higher is better."""
    clipped = min(max(log_effect, -_MOST), _MOST)
    return -math.expm1(-clipped) if better == "higher" else math.expm1(clipped)


def effect_of(base: float, head: float, better: Better) -> float:
    """Effect between two values; `base` must not be zero; always finite."""
    effect = (base - head) / base if better == "higher" else (head - base) / base
    return min(max(effect, -math.exp(_MOST)), math.exp(_MOST))


def worse_bar(limit: Limit, better: Better) -> float:
    """Log ratio at which the effect equals a relative `limit`."""
    return -math.log1p(-limit.bound) if better == "higher" else math.log1p(limit.bound)


def better_bar(limit: Limit, better: Better) -> float:
    """Negative log ratio at which the improvement equals a relative `limit`."""
    return -math.log1p(limit.bound) if better == "higher" else math.log1p(-limit.bound)


def verdict(
    series: LaunchValues, kind: VerdictKind, method: Method | None, reason: str, **numbers: Any
) -> Verdict:
    """Verdict on `series`; `numbers` are further fields of :class:`.Verdict`."""
    return Verdict(
        id=series.id,
        metric=series.metric,
        unit=series.unit,
        better=series.better,
        kind=kind,
        method=method,
        limit=series.limit.text,
        reason=reason,
        doubts=series.doubt,
        **numbers,
    )


def trivial_verdict(series: LaunchValues) -> Verdict | None:
    """Verdict that needs no base, or explains why none is possible; else None."""
    if not series.head:
        return verdict(series, "not_measured", None, f"the head has no value of {series.metric}")
    if non_finite := [value for value in series.head if not math.isfinite(value)]:
        return verdict(series, "errored", None, f"the head's {series.metric} is {non_finite[0]}")
    if series.limit.kind != "relative":
        return _absolute(series)
    if series.better == "none":
        cause = f"{series.metric} has no preferred direction, so {series.limit.text} is undefined"
        return verdict(series, "errored", None, cause + _BOUND_HINT)
    if not series.base:
        return verdict(series, "no_baseline", None, f"the base has no value of {series.metric}")
    return None


def has_no_variance(series: LaunchValues) -> bool:
    """Whether neither side varies, as far as several base values can show."""
    return len(series.base) > 1 and len({*series.base}) == 1 and len({*series.head}) == 1


def simple_verdict(series: LaunchValues) -> Verdict | None:
    """Trivial verdict, or an exact one where neither side varies; else None."""
    if has_no_variance(series):
        return trivial_verdict(series) or exact_verdict(series, launches=len(series.base))
    return trivial_verdict(series)


def inconclusive_verdict(
    series: LaunchValues, method: Method, cause: str, **numbers: int
) -> Verdict:
    """Inconclusive verdict with the medians, for lack of launches."""
    usable = [*filter(has_logarithm, series.base)]
    base, head, effect = median(usable) if usable else None, median(series.head), None
    if base is not None:
        cause += f"; {MEDIANS}{quantity(base, series.unit)} and {quantity(head, series.unit)}"
        if head > 0:
            effect = effect_of(base, head, series.better)
            cause += f": {effect_text(series, effect)}"
    return verdict(
        series, "inconclusive", method, cause, base=base, head=head, effect=effect, **numbers
    )


def family_size(series: Sequence[LaunchValues]) -> int:
    """Number of `series` that need statistics: `m` of a whole suite."""
    return sum(not trivial_verdict(item) and not has_no_variance(item) for item in series)


def exact_verdict(series: LaunchValues, *, launches: int) -> Verdict:
    """Verdict about constant values."""
    base, head = series.base[0], series.head[0]
    return threshold_verdict(series, base, head, "exact", "no variance: exact comparison", launches)


def threshold_verdict(
    series: LaunchValues, base: float, head: float, method: Method, text: str, launches: int
) -> Verdict:
    """Verdict by the limit alone about one value per side; `text` ends the reason."""
    if series.is_amount and min(base, head) == 0 < max(base, head) < math.inf:
        is_worse = (head > base) == (series.better == "lower")
        kind: VerdictKind = "regressed" if is_worse else "improved"
        change = f"{quantity(base, series.unit)} before, {quantity(head, series.unit)} now"
        reason = f"{change}, limit {series.limit.text}; {text}"
        return verdict(series, kind, method, reason, base=base, head=head, launches=launches)
    if unusable_verdict := unusable(series, base, head):
        return unusable_verdict
    effect = 0.0 if base == head else effect_of(base, head, series.better)
    bound = series.limit.bound
    is_lenient = series.is_lenient and method == "threshold"
    kind = "unchanged"
    if effect >= bound:
        kind = "inconclusive" if is_lenient else "regressed"
        text += "; a single total on a host clock is not reliable" * is_lenient
    elif effect <= -bound and not is_lenient:  # a slow base does not make the head a faster one
        kind = "improved"
    reason = f"{effect_text(series, effect)}, limit {series.limit.text}; {text}"
    return verdict(
        series, kind, method, reason, base=base, head=head, effect=effect, launches=launches
    )


def unusable(series: LaunchValues, base: float | None, head: float | None) -> Verdict | None:
    """Verdict if the ratio of the two is undefined, for a side that is not None; else None."""
    for side, value in (("base", base), ("head", head)):
        if value is not None and (not math.isfinite(value) or (value <= 0 and base != head)):
            cause = f"the {side}'s {series.metric} is {value:g}: {series.limit.text} of it is "
            cause += "undefined" + _BOUND_HINT * (value <= 0)
            return verdict(series, "errored", None, cause, base=_finite(base), head=_finite(head))
    return None


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _absolute(series: LaunchValues) -> Verdict:
    head, bound = median(series.head), series.limit.bound
    broken = head > bound if series.limit.kind == "at_most" else head < bound
    base = [value for value in series.base if math.isfinite(value)]
    reason = f"{quantity(head, series.unit)} {'breaks' if broken else 'keeps'} {series.limit.text}"
    return verdict(
        series,
        "regressed" if broken else "unchanged",
        "absolute",
        f"{reason}; absolute bound, not compared with the base",
        base=median(base) if base else None,
        head=head,
        launches=len(series.head),
    )


LABEL: Final = "threshold, not statistical"


def judge_threshold(series: Sequence[LaunchValues]) -> list[Verdict]:
    """One verdict per series, in order: the head's median against that of the level."""
    return [
        simple_verdict(item)
        or threshold_verdict(item, median(item.level), median(item.head), "threshold", LABEL, 1)
        for item in series
    ]
