"""Texts as both databases take them."""

from __future__ import annotations

from typing import Final

from gpubench_plugin.environment import json_text

_LONGEST: Final = 200
"""Characters of a text in an index: PostgreSQL takes no entry above 2.7 kB."""


def clean(text: str) -> str:
    """`text` as both databases take it: no lone surrogates, no null character."""
    return json_text.well_formed(text).replace("\0", "\\x00")


def indexed(text: str) -> str:
    """`text` as it stands in an index."""
    return clean(text)[:_LONGEST]
