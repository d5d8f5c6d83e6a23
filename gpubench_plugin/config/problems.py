"""What is wrong with a configuration, said once and fully: who, which key, what is allowed."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING

from gpubench_plugin.config import explain as keys
from gpubench_plugin.errors import UsageProblem, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

    from gpubench_plugin.config.layers import Key, Merged

_LONGEST_VALUE = 80
_OWN_WORDS = {"value_error", "assertion_error"}  # raised by a validator of a workload's section


def explain(error: ValidationError, merged: Merged, schema: keys.Schema) -> UsageProblem:
    """One error for all that pydantic found wrong with the `merged` layers, a line for each."""
    lines = (_line(details, merged, schema) for details in error.errors(include_url=False))
    return UsageProblem("\n".join(dict.fromkeys(lines)))


def at(merged: Merged, key: Key, problem: str) -> UsageProblem:
    """The error that `key` has a `problem`, naming who said it."""
    return UsageProblem(_said(merged, key, problem))


def shown(value: object) -> str:
    """`value` as YAML would have it, on one line and not too long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _line(details: ErrorDetails, merged: Merged, schema: keys.Schema) -> str:
    place = tuple(map(str, details["loc"]))
    if details["type"] == "extra_forbidden":
        return _said(merged, place, _unknown(place, schema))
    key = _known(place, schema)
    annotation = keys.annotation_at(schema, key) if key else schema
    if details["type"] in _OWN_WORDS:
        return _said(merged, key, f"{details['ctx']['error']}")
    if details["type"] == "missing":
        return _said(merged, key, f"is missing; allowed: {keys.allowed(annotation)}")
    value = merged.get(key)
    hint = nearest(value, keys.choices(annotation)) if isinstance(value, str) else ""
    allowed = keys.allowed(annotation)
    return _said(merged, key, f"{shown(value)} is not allowed{hint}; allowed: {allowed}")


def _said(merged: Merged, key: Key, problem: str) -> str:
    source, name = merged.source(key) or merged.source(key[:-1]), ".".join(key)
    flag = source.partition("=")[0]
    if "." in flag and flag.startswith(f"--{name}"):  # --training.steps=x names the key itself
        name = ""
    return ": ".join(part for part in (source, name, problem) if part)


def _known(place: Key, schema: keys.Schema) -> Key:
    """`place` without what pydantic appends to a key: members of a union, items of a list."""
    while place and keys.annotation_at(schema, place) is None:
        place = place[:-1]
    return place


def _unknown(place: Key, schema: keys.Schema) -> str:
    *parents, name = place
    annotation = keys.annotation_at(schema, tuple(parents)) if parents else schema
    section = keys.section_of(annotation) or schema
    beside = [(*parents, other) for other in section.model_fields]
    what = "key" if parents else "section"
    allowed = ", ".join(section.model_fields)
    return f"unknown {what}{_meant(name, beside, schema)}; allowed: {allowed}"


def _meant(name: str, beside: Sequence[Key], schema: keys.Schema) -> str:
    """The keys `name` may have meant: the same elsewhere, else one like it here, else anywhere."""
    everywhere = [key for key, _ in keys.walk(schema)]
    same = [key for key in everywhere if key[-1] == name]
    meant = same or _like(name, beside) or _like(name, everywhere)
    if not meant:
        return ""
    *some, last = (repr(".".join(key)) for key in meant)
    listed = f"{', '.join(some)} or {last}" if some else last
    return f" (did you mean {listed}?)"


def _like(name: str, among: Iterable[Key]) -> list[Key]:
    by_name: dict[str, list[Key]] = {}
    for key in among:
        by_name.setdefault(key[-1], []).append(key)
    return [key for near in difflib.get_close_matches(name, by_name, n=1) for key in by_name[near]]
