"""When pairs of launches are looked at, and what each look may cost in false alarms."""

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


def rate_of_look(number: int) -> float:
    """The false discovery rate of a look, the first being number 1.

    All rates, of however many looks, add up to :data:`FALSE_ALARMS`: so one may always go on. What
    three looks leave is spent as 1/2 + 1/6 + 1/12 + … = 1, a sum that nobody has to end (alpha
    spending: K. Lan and D. DeMets, 1983).
    """
    later = number - len(_SHARES)
    if later <= 0:
        return FALSE_ALARMS * _SHARES[number - 1]
    return FALSE_ALARMS * (1 - sum(_SHARES)) / (later * (later + 1))


def used_pairs(pairs: int) -> int:
    """How many of so many pairs are judged: those up to the last look, 0 of fewer than five.

    Pairs between two looks wait for the next one, so that nobody gains by looking after each pair.
    """
    return pairs // LOOK * LOOK


def unseen(pairs: int) -> float:
    """The share of launches that may be slow though none of so many pairs showed one, at 95 %."""
    return 1 - math.pow(0.05, 1 / pairs)
