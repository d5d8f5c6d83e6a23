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


UNICODE: Final = Glyphs(micro="µ", plus_minus="±", ellipsis="…", nothing="\N{EN DASH}")
ASCII: Final = Glyphs(micro="u", plus_minus="+-", ellipsis="~", nothing="-")


def glyphs_for(encoding: str | None) -> Glyphs:
    """The signs a terminal of this `encoding` can show; without one, ASCII."""
    try:
        "".join(astuple(UNICODE)).encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return UNICODE
