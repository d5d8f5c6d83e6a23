"""Types of the keys, read off the schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from gpubench_plugin.config import schema_errors
from gpubench_plugin.config.sections import Section


class Inner(Section):
    depth: int = Field(default=1, ge=1, le=8)


class Outer(Section):
    inner: Inner = Inner()
    maybe: Inner | None = None
    table: dict[str, Inner] = {}  # noqa: RUF012 # pydantic copies defaults
    name: str | None = None


def test_keys_are_found_at_any_depth() -> None:
    """Through sections, sections or null, and mappings of sections, in the order of declaration."""
    found = [
        schema_errors.annotation_at(Outer, key) is not None
        for key in [("maybe", "depth"), ("table", "any", "depth"), ("inner", "no"), ("name", "x")]
    ]
    assert found == [True, True, False, False]
    assert [key for key, _ in schema_errors.walk(Outer)] == [
        ("inner", "depth"),
        ("maybe", "depth"),
        ("table",),
        ("name",),
    ]


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (str, (True, False)),
        (str | None, (True, True)),
        (Literal["a", "b"], (True, False)),
        (int | Literal["auto"], (False, False)),
        (int | None, (False, True)),
        (Annotated[str, Field(min_length=1)], (True, False)),
    ],
)
def test_text_and_null(annotation: Any, expected: tuple[bool, bool]) -> None:
    """Whether a key takes nothing but text, and whether it takes null, is read off its type."""
    assert (schema_errors.takes_text(annotation), schema_errors.takes_null(annotation)) == expected
