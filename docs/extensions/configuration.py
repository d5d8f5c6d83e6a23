"""The keys of a configuration, from the sections that declare them."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from pydantic import TypeAdapter

from docs.extensions.markdown import table
from gpubench_plugin.config import schema_errors
from gpubench_plugin.config.layers import PROFILES
from gpubench_plugin.config.sections import Configuration, MeasureSection, ModelSection
from gpubench_plugin.core import catalog

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from gpubench_plugin.config.layers import Key

SCHEMA: Final = Configuration[ModelSection]
_HEADER: Final = ("Key", "Allowed", "Default", "Meaning")
_SIGNS: Final = {
    "exclusiveMinimum": ">",
    "minimum": "≥",
    "exclusiveMaximum": "<",
    "maximum": "≤",
}


def keys() -> str:
    """A table for each section."""
    return "\n".join(_sections())


def _sections() -> Iterator[str]:
    for section, fields in groupby(schema_errors.walk(SCHEMA), key=lambda found: found[0][0]):
        kind = schema_errors.section_of(schema_errors.annotation_at(SCHEMA, (section,)))
        yield f"### {section}\n\n{inspect.getdoc(kind)}\n"
        yield table(_HEADER, (_row(SCHEMA, key, field) for key, field in fields))


def workload_keys() -> str:
    """A table for each workload, of what it adds to the section ``model``."""
    return "\n".join(_workloads())


def _workloads() -> Iterator[str]:
    shared = ModelSection.model_fields.keys()
    for name in catalog.choices("workloads"):
        section = catalog.load("workloads", name).Section
        own = ((key, field) for key, field in section.model_fields.items() if key not in shared)
        rows = [_row(section, (key,), field, prefix="model.") for key, field in own]
        if rows:
            yield f"### {name}\n\n{table(_HEADER, rows)}"


def profiles() -> str:
    """A table of the keys whose defaults a profile replaces."""
    plain = MeasureSection().model_dump()
    columns = [plain, *({**plain, **values} for values in PROFILES.values())]
    stated = sorted({key for values in PROFILES.values() for key in values})
    rows = ((f"`measure.{key}`", *(f"{values[key]:g}" for values in columns)) for key in stated)
    return table(("Key", "default", *PROFILES), rows)


def _row(
    schema: schema_errors.Schema, key: Key, field: FieldInfo, prefix: str = ""
) -> tuple[str, ...]:
    default = "required" if field.is_required() else f"`{json.dumps(field.get_default())}`"
    return f"`{prefix}{'.'.join(key)}`", _allowed(field), default, _meaning(schema, key)


def _meaning(schema: schema_errors.Schema, key: Key) -> str:
    """The docstring below the key in the class of its section or a base of it, on one line."""
    *parents, name = key
    if parents:
        found = schema_errors.annotation_at(schema, tuple(parents))
        schema = cast("schema_errors.Schema", schema_errors.section_of(found))
    owner = next(kind for kind in schema.__mro__ if name in kind.__annotations__)
    definition = cast("ast.ClassDef", ast.parse(inspect.getsource(owner)).body[0])
    for statement, below in pairwise(definition.body):
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == name:
            text = ast.literal_eval(below.value) if isinstance(below, ast.Expr) else ""
            return " ".join(text.split())
    return ""


def _allowed(field: FieldInfo) -> str:
    """Its type, choices and bounds: ``integer > 0, auto or null``."""
    annotation: Any = (
        Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    )
    schema = TypeAdapter(annotation).json_schema()
    return " or ".join(map(_alternative, schema.get("anyOf", [schema])))


def _alternative(schema: dict[str, Any]) -> str:
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return ", ".join(schema["enum"])
    bounds = (f"{sign} {schema[name]:g}" for name, sign in _SIGNS.items() if name in schema)
    return " ".join([schema["type"], *bounds])
