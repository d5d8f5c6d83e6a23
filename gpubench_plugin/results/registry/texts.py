"""Texts as both databases take them, and what stands for long ones."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from gpubench_plugin.environment import json_files

_LONGEST: Final = 200
"""Characters of a text in an index: PostgreSQL takes no entry above 2.7 kB."""


def clean(text: str) -> str:
    """`text` as both databases take it: no lone surrogates, no null character."""
    return json_files.well_formed(text).replace("\0", "\\x00")


def indexed(text: str) -> str:
    """`text` as it stands in an index."""
    return clean(text)[:_LONGEST]


def digest(value: object) -> str:
    """What stands for a text, or for facts, in other tables."""
    text = value if isinstance(value, str) else json_files.text(_sorted(value))
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _sorted(value[key]) for key in sorted(value, key=str)}
    return value
