"""Student's t: how far a mean of a few values may lie from the true one.

By itself, since every process that measures would import ``scipy`` for nothing else.
"""

from __future__ import annotations

import math
from functools import lru_cache

# The quantile is bisected between zero and more than one degree of freedom has at 99.99 % (6366);
# then halving so often leaves no digit of a float.
_MOST = 1e4
_HALVINGS = 60


@lru_cache(maxsize=256)
def t_quantile(confidence: float, freedom: int) -> float:
    """The t within which so large a share lies on both sides of zero: 2.262 for 0.95 and 9."""
    low, high = 0.0, _MOST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _within(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return high


def expanded_t(freedom: float, z: float) -> float:
    """The quantile of Student's t where the normal distribution's is `z`, in closed form.

    For any degrees of freedom, also in fractions, and as often as needed.

    Source: M. Abramowitz and I. A. Stegun, Handbook of Mathematical Functions (1964), 26.7.5;
    within 0.5 % from 4 degrees of freedom on at 97.5 %, as tests/unit/measure/test_student.py holds
    against scipy.
    """
    freedom = max(freedom, 1.0)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def _within(t: float, freedom: int) -> float:
    """P(-t ≤ T ≤ t) for a whole number of degrees of freedom.

    M. Abramowitz, I. A. Stegun: Handbook of Mathematical Functions (1964), 26.7.3 and 26.7.4.
    """
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (power + 1) / (power + 2)
    share = math.sin(angle) * total
    return 2 / math.pi * (angle + share) if odd else share
