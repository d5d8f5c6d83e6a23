"""Sequential testing: when pairs are judged, and the false alarm budget of each look."""

from __future__ import annotations

import math
from typing import Final

LOOK: Final = 5
"""A look is taken after each so many pairs."""

PAIRS: Final = 15
"""After so many pairs nobody goes on unless asked to."""

UNCHANGED_FROM: Final = 10
"""Before so many pairs nothing is called unchanged unless asked to."""


UNCHANGED_FROM_CHOICES: Final = (5, 10, 15)
"""What may be asked for instead: less cost, or more certainty."""

MOST_PAIRS: Final = 200
"""More are not advised."""

FALSE_ALARMS: Final = 0.01
"""How many suites without any effect may have something called regressed, over all looks."""

_SHARES: Final = (0.30, 0.26, 0.28)
"""Of the false alarms, what the first three looks may spend; all later ones share the rest.

The first one saves launches, and by default the third is the last."""


def false_discovery_rate(number: int) -> float:
    """False discovery rate of look `number`, counted from 1.

    All rates, of however many looks, add up to :data:`FALSE_ALARMS`: so one may always go on. What
    three looks leave is spent as 1/2 + 1/6 + 1/12 + … = 1, a sum that nobody has to end (alpha
    spending: K. Lan and D. DeMets, 1983).
    """
    extra_looks = number - len(_SHARES)
    if extra_looks <= 0:
        return FALSE_ALARMS * _SHARES[number - 1]
    return FALSE_ALARMS * (1 - sum(_SHARES)) / (extra_looks * (extra_looks + 1))


def used_pairs(pairs: int) -> int:
    """Number of pairs judged: those up to the last look; 0 for fewer than five.

    Pairs between two looks wait for the next one, so that nobody gains by looking after each pair.
    """
    return pairs // LOOK * LOOK


def undetected_share(pairs: int) -> float:
    """Largest share of slow launches that so many pairs may have missed, at 95 %."""
    return 1 - math.pow(0.05, 1 / pairs)
