"""The reference page of the keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, TypeAdapter

from gpubench_plugin.config import schema_errors
from gpubench_plugin.config.sections import Configuration, ModelSection, Section

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "configuration.md"


def markdown_table(schema: schema_errors.Schema = Configuration[ModelSection]) -> str:
    """Every key of `schema` with what it allows, its default and its meaning."""
    rows = [
        (
            f"`{'.'.join(key)}`",
            _allowed(field),
            "required" if field.is_required() else f"`{json.dumps(field.get_default())}`",
            " ".join((field.description or "").split()),
        )
        for key, field in schema_errors.walk(schema)
    ]
    header = ("Key", "Allowed", "Default", "Meaning")
    return "".join(_row(cells) for cells in (header, ("---",) * len(header), *rows))


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


def test_the_documented_table_is_current() -> None:
    """The table in the docs is the one generated from the schema."""
    text = DOCUMENT.read_text(encoding="utf-8")
    table = text.partition("<!-- keys -->\n")[2].partition("<!-- /keys -->")[0]
    assert table == markdown_table()


def test_every_key_has_a_meaning() -> None:
    """No key of the configuration is left without a description."""
    silent = [
        key
        for key, field in schema_errors.walk(Configuration[ModelSection])
        if not field.description
    ]
    assert silent == []


def test_a_bar_does_not_break_the_table() -> None:
    """A bar in a description is escaped, and a key without default is said to be required."""

    class Sized(Section):
        size: int = Field(description="a|b")

    assert markdown_table(Sized).splitlines()[-1] == (r"| `size` | integer | required | a\|b |")
