"""Terminal text: width in columns, cutting, digits of numbers, sparklines."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Sequence
from typing import Final, TypeVar

from gpubench_plugin.core.format import MOST_DIGITS

_Value = TypeVar("_Value")

# Columns to which parameters are cut at least: the first letters and the last word.
_MIN_PARAMETERS: Final = 10
_ELLIPSIS: Final = "…"
NOTHING: Final = "\N{EN DASH}"  # in the cell of a number that is not there
_COMMAND: Final = re.compile(r"(?<!\S)::|##\[")
_ESCAPED: Final = {"::": r"\x3a:", "##[": r"#\x23["}


def printable(text: str) -> str:
    """`text` on one line, with control characters and GitHub workflow commands escaped."""
    one_line = re.sub(r"\s*[\r\n]+\s*", " ", text.strip())
    return defuse_commands("".join(map(escape_control, one_line)))


def defuse_commands(text: str) -> str:
    """Defuse GitHub workflow commands in `text`, which is printed in CI logs.

    A line that starts with ``::``, after any space, is one, and a line that contains ``##[``. Every
    word is checked, since a text may be wrapped.
    """
    return _COMMAND.sub(lambda match: _ESCAPED[match.group()], text)


def width(text: str) -> int:
    """Width of `text` in terminal columns: East Asian wide is 2, combining marks are 0."""
    if text.isascii():
        return len(text)
    return sum(_columns(c) for c in text)


def fill(text: str, columns: int, *, right: bool = False) -> str:
    """Pad `text` with spaces to `columns`."""
    space = " " * (columns - width(text))
    return f"{space}{text}" if right else f"{text}{space}"


def cut(text: str, columns: int, ellipsis: str = _ELLIPSIS) -> str:
    """Cut `text` at the end to `columns`."""
    if width(text) <= columns:
        return text
    return _head(text, max(columns - width(ellipsis), 0)) + ellipsis


def shorten(texts: Sequence[str], columns: int) -> list[str]:
    """Shorten `texts` to `columns` in the middle, keeping them distinct if possible.

    Parameters in brackets are cut before a test's name. The cut moves until all texts differ, if
    there is such a place. It starts at a third, since the end of the parameters distinguishes most.
    """
    if all(width(text) <= columns for text in texts):
        return list(texts)
    unique = {*texts}
    heads = sorted(range(max(columns, 1)), key=lambda head: abs(head - columns // 3))
    for head in (*heads, heads[0]):
        shortened = {text: _without_middle(text, columns, head) for text in unique}
        if len({*shortened.values()}) == len(unique):
            break
    return [shortened[text] for text in texts]


def _without_middle(text: str, columns: int, head: int) -> str:
    if width(text) <= columns:
        return text
    test, bracket, variant = text.partition("[")
    room = columns - width(test + bracket)
    if bracket and room >= _MIN_PARAMETERS:
        return f"{test}[{_without_middle(variant, room, head * room // columns)}"
    head = min(head, max(columns - 1, 0))
    tail = max(columns - 1 - head, 0)
    return _head(text, head) + _ELLIPSIS + _head(text[::-1], tail)[::-1]


def _head(text: str, columns: int) -> str:
    """Longest prefix of `text` that fits."""
    if text.isascii():
        return text[:columns]
    used = 0
    for end, character in enumerate(text):
        used += _columns(character)
        if used > columns:
            return text[:end]
    return text


def _columns(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def escape_control(character: str) -> str:
    """Escape a control or format character (bidi override), surrogate or line separator."""
    if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}:
        return character.encode("unicode_escape").decode("ascii")
    return character


_BLOCKS: Final = "▁▂▃▄▅▆▇█"
# What is printed for the signs of reports where an encoding lacks one; of equal width where columns
# have been aligned.
_IN_ASCII: Final = {
    ", ±": ", +-",
    " ±": "+-",
    " µs": " us",  # other letters may be a name's, and are escaped
    **dict(zip(f"…{NOTHING}≈·○●◆│✗✓", "~-~|ox#|x+", strict=True)),
    **dict(zip(_BLOCKS, "01234567", strict=True)),
    "→": "->",
    "≥": ">=",
}


def encodable(text: str, stream: object) -> str:
    """`text` as the `stream` can encode it: with ASCII for the signs of reports, else escapes."""
    encoding = getattr(stream, "encoding", None) or "ascii"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        for sign, replacement in _IN_ASCII.items():
            text = text.replace(sign, replacement)
    return text.encode(encoding, "backslashreplace").decode(encoding)


# Digits of a number without an interval, or in doubt: more would claim what was not measured.
_WITHOUT_INTERVAL: Final = 3


def digits_for(half_width: float | None) -> int:
    """Number of significant digits justified by this relative half-width.

    The last digit is the first uncertain one: 8.4 ms at ±26%, 11.5 µs at ±1.3%, 18.42 ms at
    ±0.5%; one digit is always shown.
    """
    if half_width is None or not math.isfinite(half_width):
        return _WITHOUT_INTERVAL
    if half_width <= 0:
        return MOST_DIGITS
    return min(max(2 + math.floor(-math.log10(half_width)), 1), MOST_DIGITS)


# Range of a plot relative to its values, at least: noise below 1% would fill it otherwise.
LEAST_EXTENT: Final = 0.01
MARK: Final = "|"  # before the first value of a new level


def evenly_chosen(values: Sequence[_Value], most: int) -> Sequence[_Value]:
    """At most so many of the `values`, and at least two: evenly chosen, first and last included."""
    bars, last = max(most, 2), len(values) - 1
    if len(values) <= bars:
        return values
    return [values[last * bar // (bars - 1)] for bar in range(bars)]


def sparkline(values: Sequence[float], marks: Collection[int] = ()) -> str:
    """One bar per value, from lowest to highest, with :data:`MARK` before `marks`."""
    if not values:
        return ""
    low, high = min(values), max(values)
    extent = max(high - low, abs(high) * LEAST_EXTENT) or 1.0
    start = (low + high - extent) / 2
    most = len(_BLOCKS)
    bars = (_BLOCKS[min(int((v - start) / extent * most), most - 1)] for v in values)
    return "".join(f"{MARK if i in marks else ''}{sign}" for i, sign in enumerate(bars))
