"""The keys of a schema: walking them, and saying in plain words what each allows."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpubench_plugin.config.layers import Key

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
    return _container(member) or _WORDS.get(member, _name(member)) + _within(bounds)


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


def _name(annotation: Any) -> str:
    return getattr(annotation, "__name__", str(annotation))
