"""The few signs beyond ASCII in our reports, and what stands for them where they cannot."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Glyphs:
    """The signs one report is written with."""

    micro: str
    plus_minus: str
    ellipsis: str
    nothing: str
    separator: str
    lower: str
    higher: str
    to: str


UNICODE: Final = Glyphs(
    micro="µ",
    plus_minus="±",
    ellipsis="…",
    nothing="\N{EN DASH}",
    separator="·",
    lower="↓",
    higher="↑",
    to="→",
)
ASCII: Final = Glyphs(
    micro="u",
    plus_minus="+-",
    ellipsis="~",
    nothing="-",
    separator="|",
    lower="(low)",
    higher="(high)",
    to="->",
)


def glyphs_for(encoding: str | None) -> Glyphs:
    """The signs a terminal of this `encoding` can show; without one, ASCII."""
    try:
        "".join(astuple(UNICODE)).encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return UNICODE
