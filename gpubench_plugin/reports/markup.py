"""Lines of text with the markup of pytest's terminal writer, and the colours of all reports.

The caller passes each span to ``TerminalWriter.write(text, **markup)``, which knows whether the
terminal has colours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final

Markup = Mapping[str, bool]
Span = tuple[str, Markup]
"""A text and the keyword arguments of ``TerminalWriter.write`` that go with it."""
Line = tuple[Span, ...]

PLAIN: Final[Markup] = {}
BOLD: Final[Markup] = {"bold": True}
GOOD: Final[Markup] = {"green": True}
CAUTION: Final[Markup] = {"yellow": True}
BAD: Final[Markup] = {"red": True}

# SGR codes of ECMA-48 by the names of pytest's terminal writer.
_CODES: Final[Mapping[str, int]] = {"bold": 1, "red": 31, "green": 32, "yellow": 33}


def marked(texts: Iterable[str], markup: Markup = PLAIN) -> Iterator[Line]:
    """Lines of one span each."""
    return (((text, markup),) for text in texts)


def line_of(spans: Iterable[Span]) -> Line:
    """Join `spans` to a line: neighbours of equal markup are merged, trailing space is cut."""
    line = [
        ("".join(text for text, _ in group), markup)
        for markup, group in groupby(spans, key=lambda span: span[1])
    ]
    while len(line) > 1 and not line[-1][0].rstrip():
        line.pop()
    text, markup = line[-1]
    return (*line[:-1], (text.rstrip(), markup))


def plain(line: Line) -> str:
    """Text of `line` without markup."""
    return "".join(text for text, _ in line)


def painted(line: Line) -> str:
    """Text of `line` with ANSI markup, for terminals pytest does not write to."""
    colored_text = ""
    for text, markup in line:
        codes = ";".join(str(_CODES[name]) for name, is_set in markup.items() if is_set)
        colored_text += f"\x1b[{codes}m{text}\x1b[0m" if codes else text
    return colored_text
