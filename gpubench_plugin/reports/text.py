"""Text for terminals: measured and cut in columns, with numbers, units, glyphs and sparklines.

Numbers have four significant digits at most, fewer where their interval allows no more, and a
fitting prefix.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import Final

from gpubench_plugin.environment import MOST_DIGITS, Scale, scaled, significant

_COMMAND: Final = re.compile(r"(?<!\S)::|##\[")
_ESCAPED: Final = {"::": r"\x3a:", "##[": r"#\x23["}


def printable(text: str) -> str:
    """`text` on one line, with everything that could steer a terminal written as an escape.

    So is what would steer GitHub's runner, see :func:`no_command`.
    """
    joined = re.sub(r"\s*[\r\n]+\s*", " ", text.strip())
    return no_command("".join(map(_harmless, joined)))


def no_command(text: str) -> str:
    """`text` such that no line of it is a command for GitHub's runner, which reads what is printed.

    A line that begins with ``::``, after any space, is one, and one that has ``##[`` anywhere. Each
    word is looked at, since a text may be wrapped.
    """
    return _COMMAND.sub(lambda match: _ESCAPED[match.group()], text)


def width(text: str) -> int:
    """Columns that `text` takes: wide East Asian characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(_columns(c) for c in text)


def fill(text: str, columns: int, *, right: bool = False) -> str:
    """`text` padded with spaces to `columns`."""
    space = " " * (columns - width(text))
    return f"{space}{text}" if right else f"{text}{space}"


def cut(text: str, columns: int, ellipsis: str) -> str:
    """`text`, its end cut off where it takes more than `columns`."""
    if width(text) <= columns:
        return text
    return _head(text, max(columns - width(ellipsis), 0)) + ellipsis


def shorten(texts: Sequence[str], columns: int, ellipsis: str) -> list[str]:
    """Each of `texts` in at most `columns`, cut in the middle where it is longer.

    What tells the texts apart is kept: the cut moves until all differ, and if there is no such
    place, both ends are cut. It starts at a third, since the parameters at the end of a test's
    name distinguish most.
    """
    different = list(dict.fromkeys(texts))
    cuts = _cuts(max(map(len, texts), default=0), columns, ellipsis)
    chosen = next((cut for cut in cuts if _all_differ(map(cut, different))), None)
    chosen = chosen or next(_cuts(0, columns, ellipsis))
    shown = {text: chosen(text) for text in different}
    return [shown[text] for text in texts]


def _cuts(longest: int, columns: int, ellipsis: str) -> Iterator[Callable[[str], str]]:
    """Ways to cut texts of at most `longest` characters, the preferred first."""
    room = max(columns - width(ellipsis), 0)
    for head in sorted(range(room + 1), key=lambda head: abs(head - room // 3)):
        yield partial(_without_middle, columns=columns, head=head, ellipsis=ellipsis)
    for start in range(longest):
        yield partial(_without_ends, columns=columns, start=start, ellipsis=ellipsis)


def _all_differ(texts: Iterable[str]) -> bool:
    """It looks no further than the first text that was there before."""
    seen: set[str] = set()
    for text in texts:
        if text in seen:
            return False
        seen.add(text)
    return True


def _without_middle(text: str, columns: int, head: int, ellipsis: str) -> str:
    if width(text) <= columns:
        return text
    tail = max(columns - width(ellipsis) - head, 0)
    return _head(text, head) + ellipsis + _head(text[::-1], tail)[::-1]


def _without_ends(text: str, columns: int, start: int, ellipsis: str) -> str:
    if width(text) <= columns:
        return text
    return ellipsis + _head(text[start:], max(columns - 2 * width(ellipsis), 0)) + ellipsis


def _head(text: str, columns: int) -> str:
    """As much of the beginning of `text` as fits."""
    if text.isascii():
        return text[:columns]
    for end, _ in enumerate(text):
        if width(text[: end + 1]) > columns:
            return text[:end]
    return text


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _harmless(character: str) -> str:
    """Controls, format characters such as bidi overrides, surrogates, line separators escaped."""
    if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}:
        return character.encode("unicode_escape").decode("ascii")
    return character


@dataclass(frozen=True, kw_only=True)
class Glyphs:
    """The few signs beyond ASCII in a report, or what stands for them where they cannot."""

    micro: str = "µ"
    plus_minus: str = "±"
    ellipsis: str = "…"
    nothing: str = "\N{EN DASH}"
    doubtful: str = "≈"
    separator: str = "·"
    lower: str = "↓"
    higher: str = "↑"
    to: str = "→"
    hollow: str = "○"
    filled: str = "●"
    diamond: str = "◆"
    axis: str = "│"


UNICODE: Final = Glyphs()
ASCII: Final = Glyphs(
    micro="u",
    plus_minus="+-",
    ellipsis="~",
    nothing="-",
    doubtful="~",
    separator="|",
    lower="(low)",
    higher="(high)",
    to="->",
    hollow="o",
    filled="x",
    diamond="#",
    axis="|",
)


def glyphs_for(encoding: str | None) -> Glyphs:
    """The signs a terminal of this `encoding` can show; without one, ASCII."""
    try:
        "".join(astuple(UNICODE)).encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return UNICODE


_THOUSANDS: Final[Sequence[Scale]] = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_WITHOUT_INTERVAL: Final = 3
"""Digits of a number of which nobody knows how well it is known."""


def digits_for(half_width: float | None) -> int:
    """How many digits a number is worth whose interval has this relative half-width.

    The last one shown is the first that the interval leaves open: 8.4 ms of ±26 %, 11.5 µs of
    ±1.3 %, 18.42 ms of ±0.5 %, and one digit where not even the first is sure.
    """
    if half_width is None or not math.isfinite(half_width):
        return _WITHOUT_INTERVAL
    if half_width <= 0:
        return MOST_DIGITS
    return min(max(2 + math.floor(-math.log10(half_width)), 1), MOST_DIGITS)


def seconds(value: float, glyphs: Glyphs = UNICODE, digits: int = MOST_DIGITS) -> str:
    """A duration in ns, µs, ms or s: ``18.42 ms``."""
    scales = ((1.0, " s"), (1e-3, " ms"), (1e-6, f" {glyphs.micro}s"), (1e-9, " ns"))
    return scaled(value, scales, digits)


def count(value: float, digits: int = MOST_DIGITS) -> str:
    """A count or a rate without its unit: ``434.2``, ``12.34k``, ``1.234M``."""
    return scaled(value, _THOUSANDS, digits)


def percentage(fraction: float, digits: int = 2) -> str:
    """A fraction of one in percent with so many significant `digits`: ``0.62%``, ``41%``."""
    return f"{significant(fraction * 100, digits)}%"


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
