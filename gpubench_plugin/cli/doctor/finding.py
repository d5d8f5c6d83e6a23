"""Finding of a check: what is so, and what to do where it hurts a measurement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FindingOutcome = Literal["ok", "warning", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check found; `name` and `device` (None: the machine's) are its registry's.

    `value` is the fact in words, or why it is `unknown`. A `warning` has an `advice`.
    """

    name: str = ""
    device: str | None = None
    outcome: FindingOutcome
    value: str
    advice: str = ""


def ok(value: str) -> Finding:
    """Nothing that hurts."""
    return Finding(outcome="ok", value=value)


def warning(value: str, advice: str) -> Finding:
    """Something that hurts, and what to do about it."""
    return Finding(outcome="warning", value=value, advice=advice)


def unknown(reason: str, advice: str = "") -> Finding:
    """A fact that cannot be read."""
    return Finding(outcome="unknown", value=reason, advice=advice)
