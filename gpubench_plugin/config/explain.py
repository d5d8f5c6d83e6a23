"""The keys of a schema in plain words, and validation errors that explain what is allowed.

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

from gpubench_plugin.errors import UsageProblem, nearest

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from gpubench_plugin.config.layers import Key, Merged


Schema = type[BaseModel]

_BOUNDS = {"gt": "greater than", "ge": "at least", "lt": "less than", "le": "at most"}
_WORDS = {
    bool: "true or false",
    float: "a number",
    int: "an integer",
    str: "text",
    type(None): "null",
}


def walk(schema: Schema) -> Iterator[tuple[Key, FieldInfo]]:
    """Every key of `schema` that is not itself a section, in the order of declaration."""
    for name, field in schema.model_fields.items():
        section = section_of(field.annotation)
        if section is None:
            yield (name,), field
        else:
            yield from (((name, *rest), leaf) for rest, leaf in walk(section))


def annotation_at(schema: Schema, key: Key) -> Any:
    """The full annotation of the value that `key` names; None if `schema` has no such key."""
    name, *rest = key
    field = schema.model_fields.get(name)
    return None if field is None else _inside(annotation_of(field), tuple(rest))


def annotation_of(field: FieldInfo) -> Any:
    """The type of `field` together with its bounds, which pydantic keeps apart."""
    return Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


def section_of(annotation: Any) -> Schema | None:
    """The model class in `annotation`, alone or beside null; None if there is none."""
    for member in _members(annotation):
        if isinstance(member, type) and issubclass(member, BaseModel):
            return member
    return None


def takes_text(annotation: Any) -> bool:
    """Whether every value `annotation` allows is text, null aside."""
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
    """The texts a literal allows, if `annotation` holds one."""
    return tuple(
        choice
        for member in map(_bare, _members(annotation))
        if get_origin(member) is Literal
        for choice in get_args(member)
        if isinstance(choice, str)
    )


def allowed(annotation: Any) -> str:
    """What `annotation` allows, in words: ``an integer greater than 0, or null``."""
    return _allowed(annotation, ())


def _allowed(annotation: Any, bounds: tuple[Any, ...]) -> str:
    if get_origin(annotation) is Annotated:
        inner, *own = get_args(annotation)
        return _allowed(inner, (*bounds, *own))
    *some, last = (_one(member, bounds) for member in _members(annotation))
    return f"{', '.join(some)}, or {last}" if some else last


def _one(member: Any, bounds: tuple[Any, ...]) -> str:
    if get_origin(member) is Annotated:
        return _allowed(member, bounds)
    if member is type(None):
        return "null"
    if get_origin(member) is Literal:
        return ", ".join(map(str, get_args(member)))
    word = _WORDS.get(member, getattr(member, "__name__", str(member)))
    return _container(member) or word + _within(bounds)


def _inside(annotation: Any, key: Key) -> Any:
    if not key:
        return annotation
    section = section_of(annotation)
    if section is not None:
        return annotation_at(section, key)
    for member in _members(annotation):
        if _is_mapping(member):
            return _inside(get_args(member)[1], key[1:])
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


def _within(bounds: Sequence[Any]) -> str:
    said = [
        f"{words} {limit:g}"
        for bound in _flat(bounds)
        for name, words in _BOUNDS.items()
        if (limit := getattr(bound, name, None)) is not None
    ]
    examples = [
        str(example)
        for bound in bounds
        if isinstance(bound, FieldInfo)
        for example in bound.examples or ()
    ]
    such = f" such as {' or '.join(examples)}" if examples else ""
    return (f" {' and '.join(said)}" if said else "") + such


def _flat(bounds: Iterable[Any]) -> Iterator[Any]:
    """The bounds themselves; those of ``Annotated[int, Field(gt=0)]`` sit inside the field."""
    for bound in bounds:
        yield from bound.metadata if isinstance(bound, FieldInfo) else (bound,)


def _members(annotation: Any) -> tuple[Any, ...]:
    bare = _bare(annotation)
    return get_args(bare) if get_origin(bare) in {Union, types.UnionType} else (bare,)


def _bare(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _is_mapping(annotation: Any) -> bool:
    origin = get_origin(annotation)
    return isinstance(origin, type) and issubclass(origin, Mapping)


_LONGEST_VALUE = 80
_OWN_WORDS = {"value_error", "assertion_error"}  # raised by a validator of a workload's section


def explain(error: ValidationError, merged: Merged, schema: Schema) -> UsageProblem:
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


def _line(details: ErrorDetails, merged: Merged, schema: Schema) -> str:
    place = tuple(map(str, details["loc"]))
    if details["type"] == "extra_forbidden":
        return _said(merged, place, _unknown(place, schema))
    key = _known(place, schema)
    annotation = annotation_at(schema, key) if key else schema
    if details["type"] in _OWN_WORDS:
        return _said(merged, key, f"{details['ctx']['error']}")
    if details["type"] == "missing":
        return _said(merged, key, f"is missing; allowed: {allowed(annotation)}")
    value = merged.get(key)
    hint = nearest(value, choices(annotation)) if isinstance(value, str) else ""
    return _said(
        merged, key, f"{shown(value)} is not allowed{hint}; allowed: {allowed(annotation)}"
    )


def _said(merged: Merged, key: Key, problem: str) -> str:
    source, name = merged.source(key) or merged.source(key[:-1]), ".".join(key)
    flag = source.partition("=")[0]
    if "." in flag and flag.startswith(f"--{name}"):  # --training.steps=x names the key itself
        name = ""
    return ": ".join(part for part in (source, name, problem) if part)


def _known(place: Key, schema: Schema) -> Key:
    """`place` without what pydantic appends to a key: members of a union, items of a list."""
    while place and annotation_at(schema, place) is None:
        place = place[:-1]
    return place


def _unknown(place: Key, schema: Schema) -> str:
    *parents, name = place
    annotation = annotation_at(schema, tuple(parents)) if parents else schema
    section = section_of(annotation) or schema
    beside = [(*parents, other) for other in section.model_fields]
    what = "key" if parents else "section"
    allowed = ", ".join(section.model_fields)
    return f"unknown {what}{_meant(name, beside, schema)}; allowed: {allowed}"


def _meant(name: str, beside: Sequence[Key], schema: Schema) -> str:
    """The keys `name` may have meant: the same elsewhere, else one like it here, else anywhere."""
    everywhere = [key for key, _ in walk(schema)]
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
