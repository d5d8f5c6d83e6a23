"""The reference page of the keys."""

from __future__ import annotations

import ast
import inspect
import json
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import pytest
from pydantic import TypeAdapter

from gpubench_plugin.config import schema_errors
from gpubench_plugin.config.sections import Configuration, ModelSection

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from gpubench_plugin.config.layers import Key

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "configuration.md"


def markdown_table(schema: schema_errors.Schema = Configuration[ModelSection]) -> str:
    """Every key of `schema` with what it allows, its default and its meaning."""
    rows = [
        (
            f"`{'.'.join(key)}`",
            _allowed(field),
            "required" if field.is_required() else f"`{json.dumps(field.get_default())}`",
            _meaning(schema, key),
        )
        for key, field in schema_errors.walk(schema)
    ]
    header = ("Key", "Allowed", "Default", "Meaning")
    return "".join(_row(cells) for cells in (header, ("---",) * len(header), *rows))


def _meaning(schema: schema_errors.Schema, key: Key) -> str:
    """The docstring below the key in the class of its section or a base of it, on one line."""
    *parents, name = key
    section = schema_errors.section_of(schema_errors.annotation_at(schema, tuple(parents)))
    owner = next(kind for kind in cast("type", section).__mro__ if name in kind.__annotations__)
    definition = cast("ast.ClassDef", ast.parse(inspect.getsource(owner)).body[0])
    for statement, below in pairwise(definition.body):
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == name:
            text = ast.literal_eval(below.value) if isinstance(below, ast.Expr) else ""
            return " ".join(text.split())
    return ""


def _allowed(field: FieldInfo) -> str:
    """Its type, choices and bounds: ``integer > 0, auto or null``."""
    annotation = (
        Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    )
    schema = TypeAdapter(annotation).json_schema()
    alternatives = schema.get("anyOf", [schema])
    return " or ".join(map(_alternative, alternatives))


def _alternative(schema: dict[str, Any]) -> str:
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return ", ".join(schema["enum"])
    signs = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    bounds = (f"{sign} {schema[name]:g}" for name, sign in signs.items() if name in schema)
    return " ".join([schema["type"], *bounds])


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


@pytest.mark.slow
def test_the_documented_table_is_current() -> None:
    """The table in the docs is the one generated from the schema."""
    text = DOCUMENT.read_text(encoding="utf-8")
    table = text.partition("<!-- keys -->\n")[2].partition("<!-- /keys -->")[0]
    assert table == markdown_table()


@pytest.mark.slow
def test_every_key_has_a_meaning() -> None:
    """No key of the configuration is left without a description."""
    schema = Configuration[ModelSection]
    assert [key for key, _ in schema_errors.walk(schema) if not _meaning(schema, key)] == []
