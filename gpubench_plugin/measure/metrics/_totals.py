"""Totals over all timed calls, on which rates are based.

A rate is total work over total time, never work over a median: the median hides every stall that
hits fewer than half of the calls.
"""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpubench_plugin.records import Samples


def timed_s(samples: Samples) -> float:
    """The length of all timed blocks, in seconds."""
    return fsum(samples.block_s)


def per_second(amount: float, samples: Samples) -> float:
    """The rate at which an `amount` of work per call was done."""
    return amount * samples.calls / timed_s(samples)
