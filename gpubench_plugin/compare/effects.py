"""Effects as fractions and as log ratios, positive where the head is worse."""

from __future__ import annotations

import math
from typing import Final

from gpubench_plugin.config.limits import Limit
from gpubench_plugin.records import Better

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
