"""Schema keys described in plain words, and readable validation errors.

An error names, once and fully, the source of the value, its key, and what is allowed.
"""

from __future__ import annotations

import difflib
import json
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from gpubench_plugin.core.errors import UsageProblem, suggest

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from gpubench_plugin.config.layers import Key, Merged


Schema = type[BaseModel]

_BOUND_WORDS = {"gt": "greater than", "ge": "at least", "lt": "less than", "le": "at most"}
_WORDS = {
    bool: "true or false",
    float: "a number",
    int: "an integer",
    str: "text",
    type(None): "null",
}


def walk(schema: Schema) -> Iterator[tuple[Key, FieldInfo]]:
    """All leaf keys of `schema` in declaration order."""
    for name, field in schema.model_fields.items():
        section = section_of(field.annotation)
        if section is None:
            yield (name,), field
        else:
            yield from (((name, *subkey), leaf) for subkey, leaf in walk(section))


def annotation_at(schema: Schema, key: Key) -> Any:
    """Full annotation of the value at `key`; None if there is no such key."""
    name, *subkey = key
    field = schema.model_fields.get(name)
    return None if field is None else _item_annotation(annotation_of(field), tuple(subkey))


def annotation_of(field: FieldInfo) -> Any:
    """Type of `field` including its bounds, which pydantic stores separately."""
    return Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


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


def choices(annotation: Any) -> tuple[str, ...]:
    """Choices of a literal in `annotation`, if any."""
    return tuple(
        choice
        for member in map(_bare, _members(annotation))
        if get_origin(member) is Literal
        for choice in get_args(member)
        if isinstance(choice, str)
    )


def allowed(annotation: Any, bounds: tuple[Any, ...] = ()) -> str:
    """Describe what `annotation` allows: ``an integer greater than 0, or null``."""
    if get_origin(annotation) is Annotated:
        base_type, *own_bounds = get_args(annotation)
        return allowed(base_type, (*bounds, *own_bounds))
    *first_texts, last_text = (_describe(member, bounds) for member in _members(annotation))
    return f"{', '.join(first_texts)}, or {last_text}" if first_texts else last_text


def _describe(member: Any, bounds: tuple[Any, ...]) -> str:
    if get_origin(member) is Annotated:
        return allowed(member, bounds)
    if member is type(None):
        return "null"
    if get_origin(member) is Literal:
        return ", ".join(map(str, get_args(member)))
    word = _WORDS.get(member, getattr(member, "__name__", str(member)))
    return _container(member) or word + _bounds_text(bounds)


def _item_annotation(annotation: Any, key: Key) -> Any:
    if not key:
        return annotation
    section = section_of(annotation)
    if section is not None:
        return annotation_at(section, key)
    for member in _members(annotation):
        if _is_mapping(member):
            return _item_annotation(get_args(member)[1], key[1:])
    return None


def _container(annotation: Any) -> str:
    items = get_args(annotation)
    if get_origin(annotation) in {list, tuple}:
        if len(items) == 1 or items[-1] is ...:
            return f"a list, each item {allowed(items[0])}"
        return f"a list of {len(items)}: {'; '.join(map(allowed, items))}"
    if _is_mapping(annotation):
        return f"a mapping, each value {allowed(items[1])}"
    section = section_of(annotation)
    return f"a mapping with the keys {', '.join(section.model_fields)}" if section else ""


def _bounds_text(bounds: Sequence[Any]) -> str:
    conditions = [
        f"{comparison} {limit:g}"
        for bound in _flat(bounds)
        for name, comparison in _BOUND_WORDS.items()
        if (limit := getattr(bound, name, None)) is not None
    ]
    examples = [
        str(example)
        for bound in bounds
        if isinstance(bound, FieldInfo)
        for example in bound.examples or ()
    ]
    examples_text = f" such as {' or '.join(examples)}" if examples else ""
    return (f" {' and '.join(conditions)}" if conditions else "") + examples_text


def _flat(bounds: Iterable[Any]) -> Iterator[Any]:
    """Flatten bounds; those of ``Annotated[int, Field(gt=0)]`` are nested in the field."""
    for bound in bounds:
        yield from bound.metadata if isinstance(bound, FieldInfo) else (bound,)


def _members(annotation: Any) -> tuple[Any, ...]:
    union = _bare(annotation)
    return get_args(union) if get_origin(union) in {Union, types.UnionType} else (union,)


def _bare(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _is_mapping(annotation: Any) -> bool:
    origin = get_origin(annotation)
    return isinstance(origin, type) and issubclass(origin, Mapping)


_LONGEST_VALUE = 80  # about one terminal line
_OWN_WORDS = {"value_error", "assertion_error"}  # raised by a validator of a workload's section


def to_usage_error(error: ValidationError, merged: Merged, schema: Schema) -> UsageProblem:
    """One error for all pydantic errors in the `merged` layers, one line each."""
    lines = (_line(details, merged, schema) for details in error.errors(include_url=False))
    return UsageProblem("\n".join(dict.fromkeys(lines)))


def key_error(merged: Merged, key: Key, message: str) -> UsageProblem:
    """Error about `key`, naming the source of its value."""
    return UsageProblem(_with_source(merged, key, message))


def as_yaml(value: object) -> str:
    """`value` in YAML syntax, on one line and shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _line(details: ErrorDetails, merged: Merged, schema: Schema) -> str:
    location = tuple(map(str, details["loc"]))
    if details["type"] == "extra_forbidden":
        return _with_source(merged, location, _unknown_key_message(location, schema))
    key = _schema_key(location, schema)
    annotation = annotation_at(schema, key) if key else schema
    if details["type"] in _OWN_WORDS:
        return _with_source(merged, key, f"{details['ctx']['error']}")
    if details["type"] == "missing":
        return _with_source(merged, key, f"is missing; allowed: {allowed(annotation)}")
    value = merged.get(key)
    hint = suggest(value, choices(annotation)) if isinstance(value, str) else ""
    return _with_source(
        merged, key, f"{as_yaml(value)} is not allowed{hint}; allowed: {allowed(annotation)}"
    )


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
    *parents, name = location
    annotation = annotation_at(schema, tuple(parents)) if parents else schema
    section = section_of(annotation) or schema
    siblings = [(*parents, other) for other in section.model_fields]
    noun = "key" if parents else "section"
    allowed = ", ".join(section.model_fields)
    return f"unknown {noun}{_did_you_mean(name, siblings, schema)}; allowed: {allowed}"


def _did_you_mean(name: str, siblings: Sequence[Key], schema: Schema) -> str:
    """Suggested keys for `name`: same name elsewhere, else similar here, else anywhere."""
    all_keys = [key for key, _ in walk(schema)]
    same_name = [key for key in all_keys if key[-1] == name]
    suggestions = same_name or _similar_keys(name, siblings) or _similar_keys(name, all_keys)
    if not suggestions:
        return ""
    *first_names, last_name = (repr(".".join(key)) for key in suggestions)
    text = f"{', '.join(first_names)} or {last_name}" if first_names else last_name
    return f" (did you mean {text}?)"


def _similar_keys(name: str, candidates: Iterable[Key]) -> list[Key]:
    by_name: dict[str, list[Key]] = {}
    for key in candidates:
        by_name.setdefault(key[-1], []).append(key)
    return [
        key for match in difflib.get_close_matches(name, by_name, n=1) for key in by_name[match]
    ]
