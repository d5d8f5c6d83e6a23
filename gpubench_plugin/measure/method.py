"""The version of the measuring method: numbers of two of them are not compared."""

from __future__ import annotations

from typing import Final

FIRST_METHOD: Final = 1
"""That of records which name none: all that were written before methods had numbers."""

MEASURING_METHOD: Final = 1
"""Raised by a change after which the same step would get another number on the same machine.

Such a change is one to the loop, the warm-up, the rule that ends measuring, what stands between two
calls, or the formula of a metric that is judged; a new metric or a faster summary is none. Then
pinned runs are incomparable and baselines are set anew, so it is not raised for less.

1. Warm-up to steady state, then blocks of calls, a decision of the loop between two of them; the
   median and the minimum of all timed calls. How long and how often is a matter of settings.
"""
