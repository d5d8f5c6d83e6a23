"""Strict YAML reader: plain values only, with exact error positions.

Scalars follow the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema): only
``true`` and ``false`` are booleans, ``1e-3`` is a number, ``010`` is ten, and there are no dates.
Values are built from the composed nodes here and nowhere else, so that no tag can construct an
object.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import yaml

from gpubench_plugin.core.errors import GpubenchError, UsageProblem
from gpubench_plugin.environment import files

MAX_BYTES = 256 * 1024
MAX_VALUES = 10_000
MAX_DEPTH = 50
"""Limits far beyond any configuration (a few KB, a hundred keys, four levels), so that a wrong file
is refused at once; not measured."""

_MAX_DIGITS = 308
"""An integer of more digits exceeds the largest float, 1.8e308, and no key takes one."""

_TOO_DEEP = f"nested more than {MAX_DEPTH} deep, or an anchor (&) that contains itself"
_TAG = "tag:yaml.org,2002:"
_SCALARS = {
    "null": re.compile(r"(?:~|null|Null|NULL|)$"),
    "bool": re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"),
    "int": re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$"),
    "float": re.compile(
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
}


class CoreSchema(yaml.resolver.BaseResolver):
    """YAML 1.2 core schema for plain scalars, for loaders and dumpers."""

    # The stubs of PyYAML have an instance variable here; PyYAML itself has a class variable.
    yaml_implicit_resolvers: ClassVar[dict[str | None, list[tuple[str, re.Pattern[str]]]]] = {  # type: ignore[misc]
        None: [(_TAG + name, pattern) for name, pattern in _SCALARS.items()]
    }


class _Loader(
    yaml.reader.Reader,
    yaml.scanner.Scanner,
    yaml.parser.Parser,
    yaml.composer.Composer,
    CoreSchema,
):
    """PyYAML's pipeline up to the node graph, without a constructor."""

    def __init__(self, text: str) -> None:
        yaml.reader.Reader.__init__(self, text)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)
        yaml.composer.Composer.__init__(self)
        CoreSchema.__init__(self)


def read(path: Path, label: str) -> dict[str, Any]:
    """Read the mapping in the YAML file at `path`, called `label` in messages.

    Raises:
        UsageProblem: the file cannot be read, is too large, is not UTF-8, or does not hold one
            mapping of plain values; the message has file, line and column where there is one.
    """
    values = parse(_text(path, label), label)
    if not isinstance(values, dict):
        description = "empty" if values is None else _NAMES[type(values)]
        raise UsageProblem(f"{label}: the file is {description}; it must be a mapping of sections")
    return values


def parse(text: str, label: str) -> Any:
    """Parse `text` into a plain YAML value: ``dict``, ``list``, ``str``, ``int``, … or None.

    Raises:
        UsageProblem: `text` is not valid YAML, or asks for more than plain values.
    """
    try:
        node = _Loader(text).get_single_node()
        return None if node is None else _ValueBuilder().of(node)
    except yaml.MarkedYAMLError as error:
        details = ", ".join(part for part in (error.context, error.problem) if part)
        raise UsageProblem(f"{label}{_position(error)}: {details}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character = text[error.position]
        message = f"{label}:{line}: the character {character!r} is not allowed in YAML"
        raise UsageProblem(message) from None
    except RecursionError:
        raise UsageProblem(f"{label}: {_TOO_DEEP}") from None


def _text(path: Path, label: str) -> str:
    try:
        data = files.read(path, limit=MAX_BYTES)
    except FileNotFoundError as error:
        raise UsageProblem(f"{label}: cannot be read: {error.strerror}") from None
    except GpubenchError as error:
        raise UsageProblem(f"{label}: {error}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageProblem(f"{label}:{line}: not UTF-8 (byte {data[error.start]:#04x})") from None


def _position(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark
    return f":{mark.line + 1}:{mark.column + 1}" if mark else ""


def _refuse(node: yaml.Node, message: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=message, problem_mark=node.start_mark)


class _ValueBuilder:
    """Builds values from nodes, counting every alias expansion to stop anchor bombs."""

    def __init__(self) -> None:
        self._remaining = MAX_VALUES

    def of(self, node: yaml.Node, depth: int = 0) -> Any:
        self._remaining -= 1
        if depth > MAX_DEPTH:
            raise _refuse(node, _TOO_DEEP)
        if self._remaining < 0:
            raise _refuse(node, f"more than {MAX_VALUES} values, counting anchors (&) as repeated")
        tag = node.tag.removeprefix(_TAG)
        match node:
            case yaml.MappingNode() if tag == "map":
                return self._mapping(node, depth)
            case yaml.SequenceNode() if tag == "seq":
                return [self.of(item, depth + 1) for item in node.value]
            case yaml.ScalarNode() if tag in _SCALAR_VALUES:
                return _scalar(node, tag)
        tag_text = node.tag.replace(_TAG, "!!")
        allowed = "only plain values: mappings, lists, text, numbers, true, false and null"
        raise _refuse(node, f"the tag {tag_text} is not allowed here; {allowed}")

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.of(key_node, depth + 1)
            if not isinstance(key, str):
                raise _refuse(key_node, f"the key {key!r} is not text; put it in quotes")
            if key in values:
                raise _refuse(key_node, f"duplicate key {key!r} in a mapping")
            values[key] = self.of(value_node, depth + 1)
        return values


def _scalar(node: yaml.ScalarNode, tag: str) -> Any:
    try:
        return _SCALAR_VALUES[tag](node.value)
    except (ValueError, KeyError):
        raise _refuse(node, f"{node.value[:40]!r} is not a valid {tag}") from None


def _null(text: str) -> None:
    if not _SCALARS["null"].match(text):
        raise ValueError(text)


def _int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(text)
    return int(text, 0) if text[:2] in {"0o", "0x"} else int(text)


def _float(text: str) -> float:
    return float(re.sub(r"\.(?=inf|nan)", "", text.lower()))


_SCALAR_VALUES: dict[str, Callable[[str], Any]] = {
    "null": _null,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "int": _int,
    "float": _float,
    "str": str,
}
_NAMES = {bool: "a boolean", float: "a number", int: "a number", list: "a list", str: "text"}
