"""Finding of a check, with advice where it hurts a measurement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FindingOutcome = Literal["ok", "warning", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check found: `value` is the fact in words, or why it is `unknown`.

    A `warning` has an `advice`, and an unknown fact may have one. `name`, `section` and `device`
    (None: not of a GPU) are those of the check.
    """

    name: str = ""
    section: str = ""
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
