"""What differs between two records of facts, named by key and with both values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

_SHOWN: Final = 5
"""Names that a message lists."""

ABSENT = object()
"""The value of a key that one of two records lacks."""


def flat(facts: object, prefix: str = "") -> dict[str, Any]:
    """The values of nested mappings by dot key, of their lists by number: ``gpu.devices.0.name``.

    A list of plain values stays one value.
    """
    found: dict[str, Any] = {}
    _flatten(facts, prefix, found)
    return found


def _flatten(facts: object, prefix: str, found: dict[str, Any]) -> None:
    if facts is None or isinstance(facts, str | int | float):  # most are; others cost more to tell
        found[prefix] = facts
        return
    if isinstance(facts, list) and any(isinstance(fact, Mapping) for fact in facts):
        facts = {str(number): fact for number, fact in enumerate(facts)}
    if isinstance(facts, Mapping):
        for name, fact in facts.items():
            _flatten(fact, f"{prefix}.{name}" if prefix else str(name), found)
    else:
        found[prefix] = facts


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Of two flat records, each differing key with both its values, in the order of the keys."""
    pairs = {
        key: (before.get(key, ABSENT), now.get(key, ABSENT)) for key in sorted({*before, *now})
    }
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def described(pair: tuple[Any, Any]) -> str:
    """Both values in words."""
    before, now = ("absent" if value is ABSENT else json.dumps(value) for value in pair)
    return f"{before} in the run, {now} now"


def listed(names: Sequence[str]) -> str:
    """The first of the `names`, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
