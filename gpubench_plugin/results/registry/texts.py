"""Text normalization for both databases, and digests of long texts."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from gpubench_plugin.environment import json_files

_LONGEST: Final = 200
"""Characters of an indexed text: PostgreSQL limits B-tree entries to about 2.7 kB."""


def clean(text: str) -> str:
    """`text` without lone surrogates and null characters."""
    return json_files.escape_surrogates(text).replace("\0", "\\x00")


def indexed(text: str) -> str:
    """`text` as used in an index."""
    return clean(text)[:_LONGEST]


def digest(value: object) -> str:
    """Digest that references a text or facts from other tables."""
    text = value if isinstance(value, str) else json_files.text(_sorted(value))
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _sorted(value[key]) for key in sorted(value, key=str)}
    return value
