"""A name that is likely a slip of the fingers for one that exists."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_NUMBERED: Final = re.compile(r"[^\W_]*\d[^\W_]*")
"""A word with a digit: ``v1`` and ``v2``, ``a100`` and ``h100`` are no slips for each other."""

_SLIPS: Final = 1
"""Edits that make a slip: four of five misspellings are one edit away from what was meant
(Damerau, "A technique for computer detection and correction of spelling errors", 1964)."""

_WORD: Final = 3
"""Letters from which on a word can be misspelt: ``part-a`` and ``part-b`` are both meant."""


def near_miss(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` that `name` is likely to mean, though it is none of them."""
    known = sorted(names)
    if name in known:
        return None
    return next((other for other in known if _is_slip(name, other)), None)


def _is_slip(name: str, other: str) -> bool:
    one, two = _spelled(name), _spelled(other)
    if _NUMBERED.findall(one) != _NUMBERED.findall(two) or distance(one, two) > _SLIPS:
        return False
    pairs = list(zip(one.split("-"), two.split("-"), strict=False))
    return all(a == b or min(len(a), len(b)) >= _WORD for a, b in pairs)


def _spelled(name: str) -> str:
    return name.lower().replace("_", "-")


def distance(one: str, two: str) -> int:
    """How many letters are to be added, dropped, replaced or swapped with their neighbour.

    The optimal string alignment distance of Damerau and Levenshtein.
    """
    before: list[int] = []
    row = list(range(len(two) + 1))
    for i, letter in enumerate(one, 1):
        above, before, row = before, row, [i]
        for j, other in enumerate(two, 1):
            least = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == two[j - 2] and one[i - 2] == other:
                least = min(least, above[j - 2] + 1)
            row.append(least)
    return row[-1]
