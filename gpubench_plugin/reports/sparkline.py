"""A row of numbers as a row of signs: a small picture of their course."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpubench_plugin.reports.glyphs import ASCII

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gpubench_plugin.reports.glyphs import Glyphs

_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_DIGITS: Final = "01234567"
MARK: Final = "|"
"""Stands before the first value of a new level."""


def sparkline(values: Sequence[float], glyphs: Glyphs, marks: Collection[int] = ()) -> str:
    """One sign per value, from the least to the greatest, and :data:`MARK` before `marks`.

    The scale reaches over 1 % at least, so that noise does not look like mountains.
    """
    if not values:
        return ""
    signs = _DIGITS if glyphs == ASCII else _BLOCKS
    low, high = min(values), max(values)
    reach = max(high - low, abs(high) * 0.01) or 1.0
    start = (low + high - reach) / 2
    shown = (signs[min(int((v - start) / reach * len(signs)), len(signs) - 1)] for v in values)
    return "".join(f"{MARK if i in marks else ''}{sign}" for i, sign in enumerate(shown))
