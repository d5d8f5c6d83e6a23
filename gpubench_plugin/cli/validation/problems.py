"""What is wrong in a file, and in which line of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpubench_plugin.core.errors import GpubenchError
from gpubench_plugin.environment import stored

Location = Sequence[str | int]
"""Keys and list positions from the document down to a value."""

_LINE: Final = re.compile(r"\bline (\d+)")
_DECODER: Final = json.JSONDecoder(strict=False)
_SPACE: Final = re.compile(r"\s*")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong; `line` counts from 1, `key` is a dot key, empty for the document."""

    line: int
    key: str
    message: str


def schema_problems(kind: Any, fields: object, text: str, *, line: int = 1) -> Iterator[Problem]:
    """Where the parsed `text`, from `line` of its file on, breaks the schema of a `kind`."""
    for location, message in stored.violations(kind, fields):
        yield Problem(
            line=line + _line_offset(text, location),
            key=".".join(map(str, location)),
            message=message,
        )


def error_problem(error: GpubenchError, label: str) -> Problem:
    """An error as a problem; the line is the one that its message names, the first if none."""
    message = str(error).removeprefix(label).lstrip(":, ")
    line = _LINE.search(message)
    return Problem(line=int(line[1]) if line else 1, key="", message=message)


def _line_offset(text: str, location: Location) -> int:
    """Line breaks in JSON `text` before the value at `location`, or its nearest parent."""
    position = _after_space(text, 0)
    for part in location:
        members = _members(text, position)
        child = next((start for name, start in members if name == part), None)
        if child is None:
            break
        position = child
    return text.count("\n", 0, position)


def _members(text: str, position: int) -> Iterator[tuple[str | int, int]]:
    """Name and start of every member of the object or list at `position`."""
    if text[position : position + 1] not in {"{", "["}:
        return
    is_object = text[position] == "{"
    position, number = _after_space(text, position + 1), 0
    while text[position] not in "}]":
        name: str | int = number
        if is_object:
            name, position = _DECODER.raw_decode(text, position)
            position = _after_space(text, _after_space(text, position) + 1)  # the colon
        yield name, position
        _, position = _DECODER.raw_decode(text, position)
        position = _after_space(text, position)
        if text[position] == ",":
            position = _after_space(text, position + 1)
        number += 1


def _after_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position
