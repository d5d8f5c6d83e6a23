"""A name that is likely a slip of the fingers for one that exists."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_SEPARATOR: Final = re.compile(r"([-.])")

_SWAPPED: Final = 4
"""Letters from which on a word can have two swapped: ``mian``, but not ``tp`` and ``pt``."""

_ADDED: Final = 5
"""Letters from which on one of them can be too many: ``mainn``, but not ``ruin`` and ``run``."""

_REPLACED: Final = 6
"""Letters from which on a word can have a wrong one: ``silu`` and ``selu`` are both meant."""


def near_miss(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` that `name` is likely to mean, though it is none of them.

    One slip counts: four of five misspellings are one edit away from what was meant, and the first
    letter is seldom wrong (Damerau, 1964; Pollock and Zamora, 1984). Short words, first and last
    letters and numbers are what tells names of one project apart: ``cpu`` and ``gpu``, ``train``
    and ``trains``, ``a100`` and ``h100``.
    """
    known = sorted(names)
    if name in known:
        return None
    return next((other for other in known if _is_slip(name, other)), None)


def _is_slip(name: str, other: str) -> bool:
    """Whether they differ in cases, in ``_`` for ``-``, or in one misspelt word."""
    one, two = _words(name), _words(other)
    if len(one) != len(two):
        return False
    unlike = [(a, b) for a, b in zip(one, two, strict=True) if a != b]
    return not unlike or (len(unlike) == 1 and _is_misspelt(*unlike[0]))


def _words(name: str) -> list[str]:
    """The words and what is between them."""
    return _SEPARATOR.split(name.lower().replace("_", "-"))


def _is_misspelt(one: str, two: str) -> bool:
    """Whether the words differ in one swap, one letter too many, or a wrong one inside."""
    short, long = sorted((one, two), key=len)
    if any(letter.isdigit() for letter in short + long):
        return False
    letters = enumerate(zip(short, long, strict=False))
    same = next((at for at, (a, b) in letters if a != b), len(short))
    if len(short) == len(long):
        return _is_swapped(short, long, same) or _is_replaced(short, long, same)
    return len(long) >= _ADDED and short[same:] == long[same + 1 :] and _is_inside(long, same)


def _is_swapped(one: str, two: str, at: int) -> bool:
    swapped = one[:at] + one[at : at + 2][::-1] + one[at + 2 :]
    return len(one) >= _SWAPPED and swapped == two


def _is_replaced(one: str, two: str, at: int) -> bool:
    return len(one) >= _REPLACED and 0 < at < len(one) - 1 and one[at + 1 :] == two[at + 1 :]


def _is_inside(word: str, at: int) -> bool:
    """Whether the letter is neither the first nor the last, or is the one before it once more."""
    return at > 0 and (at < len(word) - 1 or word[at] == word[at - 1])
