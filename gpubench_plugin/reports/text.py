"""Text measured and cut in the columns of a terminal."""

from __future__ import annotations

import re
import unicodedata
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_COMMAND: Final = re.compile(r"(?<!\S)::|##\[")
_ESCAPED: Final = {"::": r"\x3a:", "##[": r"#\x23["}


def printable(text: str) -> str:
    """`text` on one line, with everything that could steer a terminal written as an escape.

    So is what would steer GitHub's runner, see :func:`no_command`.
    """
    joined = re.sub(r"\s*[\r\n]+\s*", " ", text.strip())
    return no_command("".join(_escape(c) if _steers(c) else c for c in joined))


def no_command(text: str) -> str:
    """`text` such that no line of it is a command for GitHub's runner, which reads what is printed.

    A line that begins with ``::``, after any space, is one, and one that has ``##[`` anywhere. Each
    word is looked at, since a text may be wrapped.
    """
    return _COMMAND.sub(lambda match: f"{_ESCAPED[match.group()]}", text)


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


def _steers(character: str) -> bool:
    """Controls, format characters such as bidi overrides, surrogates, line separators."""
    return unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
