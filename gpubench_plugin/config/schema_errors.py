"""Types of the schema's keys, and its validation errors: key, source, suggestion, pydantic's words.

An error names, once and fully, the source of the value and its key.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from gpubench_plugin.core.errors import CERTAIN, UsageProblem, alike, did_you_mean, suggest
from gpubench_plugin.core.format import grouped

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

    from gpubench_plugin.config.layers import Key, Merged


Schema = type[BaseModel]


def walk(schema: Schema) -> Iterator[tuple[Key, FieldInfo]]:
    """All leaf keys of `schema` in declaration order."""
    for name, field in schema.model_fields.items():
        section = section_of(field.annotation)
        if section is None:
            yield (name,), field
        else:
            yield from (((name, *subkey), leaf) for subkey, leaf in walk(section))


def annotation_at(schema: Schema, key: Key) -> Any:
    """Annotation of the value at `key`, without bounds; None if there is no such key."""
    name, *subkey = key
    field = schema.model_fields.get(name)
    return None if field is None else _item_annotation(field.annotation, tuple(subkey))


def _item_annotation(annotation: Any, key: Key) -> Any:
    if not key:
        return annotation
    section = section_of(annotation)
    if section is not None:
        return annotation_at(section, key)
    for member in _members(annotation):
        origin = get_origin(member)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return _item_annotation(get_args(member)[1], key[1:])
    return None


def section_of(annotation: Any) -> Schema | None:
    """Model class in `annotation`, alone or in a union with None; None if there is none."""
    types_ = (member for member in _members(annotation) if isinstance(member, type))
    return next((member for member in types_ if issubclass(member, BaseModel)), None)


def takes_text(annotation: Any) -> bool:
    """Whether `annotation` allows only text (or null)."""
    members = [_bare(member) for member in _members(annotation) if member is not type(None)]
    return all(
        member is str
        or (get_origin(member) is Literal and all(isinstance(c, str) for c in get_args(member)))
        for member in members
    )


def takes_null(annotation: Any) -> bool:
    """Whether null is allowed."""
    return type(None) in _members(annotation)


def _members(annotation: Any) -> tuple[Any, ...]:
    union = _bare(annotation)
    return get_args(union) if get_origin(union) in {Union, types.UnionType} else (union,)


def _bare(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


_LONGEST_VALUE: Final = 80  # about one terminal line
OWN_WORDS: Final = {"value_error", "assertion_error"}  # raised by a validator of a section


def to_usage_error(errors: Iterable[ErrorDetails], merged: Merged, schema: Schema) -> UsageProblem:
    """One error for all pydantic `errors` in the `merged` layers, one line for each key."""
    lines = grouped(_line(details, merged, schema) for details in errors)
    return UsageProblem(
        "\n".join(line + ", or ".join(dict.fromkeys(parts)) for line, parts in lines.items())
    )


def key_error(merged: Merged, key: Key, message: str) -> UsageProblem:
    """Error about `key`, naming the source of its value."""
    return UsageProblem(_with_source(merged, key, message))


def as_yaml(value: object) -> str:
    """`value` in YAML syntax, on one line and shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _line(details: ErrorDetails, merged: Merged, schema: Schema) -> tuple[str, str]:
    """Beginning of the message about a key, and what pydantic requires of the value.

    Each member of a union has an error of its own.
    """
    location = tuple(map(str, details["loc"]))
    if details["type"] == "extra_forbidden":
        return _with_source(merged, location, _unknown_key_message(location, schema)), ""
    key = _schema_key(location, schema)
    if details["type"] in OWN_WORDS:
        return _with_source(merged, key, f"{details['ctx']['error']}"), ""
    if details["type"] == "missing":
        return _with_source(merged, key, "is missing"), ""
    value, choices = merged.get(key), re.findall("'([^']+)'", details["msg"])
    hint = suggest(value, choices) if isinstance(value, str) else ""
    message = f"{as_yaml(value)} is not allowed{hint}: "
    return _with_source(merged, key, message), details["msg"][0].lower() + details["msg"][1:]


def _with_source(merged: Merged, key: Key, message: str) -> str:
    source, name = merged.source(key) or merged.source(key[:-1]), ".".join(key)
    flag = source.partition("=")[0]
    if "." in flag and flag.startswith(f"--{name}"):  # --training.steps=x names the key itself
        name = ""
    return ": ".join(part for part in (source, name, message) if part)


def _schema_key(location: Key, schema: Schema) -> Key:
    """`location` without pydantic's additions: union members and list indices."""
    while location and annotation_at(schema, location) is None:
        location = location[:-1]
    return location


def _unknown_key_message(location: Key, schema: Schema) -> str:
    """Suggests the keys of the same name elsewhere, else the one that is spelt most alike."""
    *parents, name = location
    section = section_of(annotation_at(schema, tuple(parents))) if parents else None
    siblings = (section or schema).model_fields
    keys = [".".join(key) for key, _ in walk(schema)]
    near = [*(".".join([*parents, sibling]) for sibling in siblings), *keys]
    meant = [key for key in keys if key.rpartition(".")[2] == name]
    meant = meant or alike(".".join(location), near, cutoff=CERTAIN)
    noun = "key" if parents else "section"
    return f"unknown {noun}{did_you_mean(meant)}; allowed: {', '.join(siblings)}"
