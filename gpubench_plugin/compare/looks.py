"""Looks: interim analyses of sequential pairs, and the false alarm budget of each."""

from __future__ import annotations

import math
from typing import Final

# Pairs between two looks: the fewest whose signed ranks can reach p = 0.03 (1/2⁵).
LOOK: Final = 5

# Pairs by default: up to 18% slow launches may be missed then, see `undetected_share`.
PAIRS: Final = 15

# Pairs required for "unchanged" by default: up to 26% slow launches may be missed then. The choices
# of the user: a head that is 50% slower in a fifth of its launches is called unchanged in about 33,
# 11 or 4% of comparisons (simulated, docs/reference/gate.md).
UNCHANGED_FROM: Final = 10
UNCHANGED_FROM_CHOICES: Final = (5, 10, 15)

# Pairs of `--until-decided`, at most: about 13 times the default cost.
MOST_PAIRS: Final = 200

# Share of suites without any effect in which something is called regressed, over all looks.
FALSE_ALARMS: Final = 0.01

# Shares of the false alarms that the first three looks may spend; later ones share the rest. The
# first look saves launches, and by default the third is the last.
_SHARES: Final = (0.30, 0.26, 0.28)


def false_discovery_rate(number: int) -> float:
    """False discovery rate of look `number`, counted from 1.

    The rates of any number of looks add up to :data:`FALSE_ALARMS`, so one may always go on: later
    looks spend 1/2 + 1/6 + 1/12 + … = 1 of the rest (alpha spending: K. Lan and D. DeMets, 1983).
    """
    extra_looks = number - len(_SHARES)
    if extra_looks <= 0:
        return FALSE_ALARMS * _SHARES[number - 1]
    return FALSE_ALARMS * (1 - sum(_SHARES)) / (extra_looks * (extra_looks + 1))


def used_pairs(pairs: int) -> int:
    """Number of pairs judged: those up to the last look; 0 for fewer than five.

    Later pairs wait for the next look: looking after each pair would raise the false alarms.
    """
    return pairs // LOOK * LOOK


def undetected_share(pairs: int) -> float:
    """Largest share of slow launches that so many pairs may have missed, at 95% confidence."""
    return 1 - math.pow(0.05, 1 / pairs)
