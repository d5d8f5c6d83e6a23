"""The YAML of configurations: plain values, with file, line and column of what is wrong.

Scalars follow the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema): only
``true`` and ``false`` are booleans, ``1e-3`` is a number, ``010`` is ten, and there are no dates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import yaml

from gpubench_plugin.core.errors import BrokenFile, ResultsError
from gpubench_plugin.system import files, json_files

if TYPE_CHECKING:
    from gpubench_plugin.config.sections import Configuration

_TAG: Final = "tag:yaml.org,2002:"
_RESOLVERS: Final = {
    "null": re.compile(r"(?:~|null|Null|NULL|)$"),
    "bool": re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"),
    "int": re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$"),
    "float": re.compile(
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
}
"""What a plain scalar has to match to be one of these, the first that does."""


_MOST_LEVELS: Final = 50
"""Of mappings and lists in each other; a configuration has four."""

# libyaml, where PyYAML was built with it, takes a tenth of the time.
_BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_BaseLoader):  # type: ignore[misc] # one of two classes, known at run time
    """Constructs plain values only: an object, a date or a set is refused, whatever its tag."""

    yaml_implicit_resolvers: ClassVar = {
        None: [(_TAG + name, pattern) for name, pattern in _RESOLVERS.items()]
    }
    yaml_constructors: ClassVar[dict[str | None, Any]] = {}
    _level = 0

    def descend_resolver(self, parent: yaml.Node | None, index: object) -> None:
        """Refuse deep nesting, since libyaml's composer would overflow the stack of C."""
        self._level += 1
        if parent is not None and self._level > _MOST_LEVELS:
            raise _refused(parent, f"nested more than {_MOST_LEVELS} deep")

    def ascend_resolver(self) -> None:
        """Count the level that the composer leaves."""
        self._level -= 1


def _refused(node: yaml.Node, message: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=message, problem_mark=node.start_mark)


def _scalar(convert: Callable[[str], Any]) -> Callable[[_Loader, yaml.ScalarNode], Any]:
    def construct(loader: _Loader, node: yaml.ScalarNode) -> Any:
        try:
            return convert(str(loader.construct_scalar(node)))
        except (ValueError, KeyError):
            kind = node.tag.removeprefix(_TAG)
            raise _refused(node, f"{node.value[:40]!r} is not a valid {kind}") from None

    return construct


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    values: dict[str, Any] = {}
    pairs = loader.construct_pairs(node, deep=True)
    for (key, value), (key_node, _) in zip(pairs, node.value, strict=True):
        if not isinstance(key, str):
            raise _refused(key_node, f"the key {key!r} is not text; put it in quotes")
        if key in values:
            raise _refused(key_node, f"duplicate key {key!r} in a mapping")
        values[key] = value
    return values


def _unknown(_loader: _Loader, node: yaml.Node) -> Any:
    tag = node.tag.replace(_TAG, "!!")
    allowed = "only plain values: mappings, lists, text, numbers, true, false and null"
    raise _refused(node, f"the tag {tag} is not allowed here; {allowed}")


_Loader.yaml_constructors = {
    f"{_TAG}map": _mapping,
    f"{_TAG}seq": lambda loader, node: loader.construct_sequence(node, deep=True),
    f"{_TAG}null": lambda *_: None,
    f"{_TAG}bool": _scalar(lambda text: {"true": True, "false": False}[text.lower()]),
    f"{_TAG}int": _scalar(lambda text: int(text, 0) if text[:2] in {"0o", "0x"} else int(text)),
    f"{_TAG}float": _scalar(lambda text: float(re.sub(r"\.(?=inf|nan)", "", text.lower()))),
    f"{_TAG}str": _scalar(str),
    None: _unknown,  # any other tag
}


def read(path: Path, label: str, *, limit: int = 256 * 1024) -> dict[str, Any]:
    """Read the mapping in the YAML file at `path`, called `label` in messages.

    `limit` is in bytes: far beyond any configuration, of a few KB, so that a wrong file is refused
    at once.

    Raises:
        BrokenFile: the file cannot be read, is too large, is not UTF-8, or does not hold one
            mapping of plain values; the message has file, line and column where there is one.
    """
    try:
        data = files.read(path, limit=limit)
    except FileNotFoundError:
        raise BrokenFile(f"{label}: no such file{json_files.nearest_hint(path)}") from None
    except ResultsError as error:
        raise BrokenFile(f"{label}: {error}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BrokenFile(f"{label}:{line}: not UTF-8 (byte {data[error.start]:#04x})") from None
    values = parse(text, label)
    if not isinstance(values, dict):
        kind = "empty" if values is None else f"{values!r:.40}"
        raise BrokenFile(f"{label}: the file is {kind}; it must be a mapping")
    return values


def parse(text: str, label: str) -> Any:
    """Parse `text` into a plain YAML value: ``dict``, ``list``, ``str``, ``int``, … or None.

    Raises:
        BrokenFile: `text` is not valid YAML, or asks for more than plain values.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        position = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        details = ", ".join(part for part in (error.context, error.problem) if part)
        raise BrokenFile(f"{label}{position}: {details}") from None
    except (yaml.YAMLError, ValueError) as error:  # a control character, or half of a surrogate
        raise BrokenFile(f"{label}: {' '.join(str(error).split())}") from None


_BaseDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

_LIMIT_BYTES: Final = 64 << 20
"""A thousand different configurations take 3 MB."""


class _Dumper(_BaseDumper):  # type: ignore[misc] # one of two classes, known at run time
    """Quotes text that YAML 1.1 or YAML 1.2 would read as another type."""


for _name, _pattern in _RESOLVERS.items():
    _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", _pattern, None)


def to_yaml(configurations: Mapping[str, Configuration[Any]]) -> str:
    """The text of ``config_resolved.yaml``: `configurations` by node id, in their order.

    Thousands of benchmarks share few: each is written once, with an anchor (``&id001``), and stands
    for the others as an alias (``*id001``).
    """
    shared: dict[str, Any] = {}
    values = {}
    for node_id, configuration in configurations.items():
        content = configuration.model_dump_json()
        if content not in shared:
            shared[content] = configuration.model_dump(mode="json")
        # As in the journal, a path that is not UTF-8 is escaped.
        values[node_id.encode("utf-8", "backslashreplace").decode("utf-8")] = shared[content]
    return dump(values)


def dump(values: Mapping[str, Any]) -> str:
    """The YAML of plain `values`, in their order."""
    text: str = yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


def read_resolved(path: Path) -> dict[str, Any]:
    """Read the configurations by node id of a run.

    Raises:
        BrokenFile: it cannot be read, or is no mapping of plain values.
    """
    return read(path, str(path), limit=_LIMIT_BYTES)
