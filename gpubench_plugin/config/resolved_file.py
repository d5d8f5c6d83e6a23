"""``config_resolved.yaml``: resolved configurations by node id.

Thousands of benchmarks share few configurations. The file has each in full for every benchmark,
but each is serialized and parsed once.

The file may come from anywhere. libyaml's loader, many times faster than Python's, recurses in C
for every level of nesting, which overflows the stack, and aliases (``*name``) expand a small file
to a huge value. So deep nesting is refused before loading, and the values are counted after it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import yaml

from gpubench_plugin.config.yaml_reader import CoreSchema
from gpubench_plugin.core.errors import BrokenFile
from gpubench_plugin.environment import files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from gpubench_plugin.config.sections import Configuration


# libyaml, where PyYAML was built with it, takes a tenth of the time.
_BaseDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_BaseDumper):  # type: ignore[misc] # one of two classes, known at run time
    """Quotes text that YAML 1.1 or YAML 1.2 would read as another type."""


for _resolvers in CoreSchema.yaml_implicit_resolvers.values():
    for _tag, _pattern in _resolvers:
        _Dumper.add_implicit_resolver(_tag, _pattern, None)

_ENTRY: Final = re.compile(
    r"(?P<key>\? [^\n]*\n(?:  [^\n]*\n)*:|[^\s?#-][^\n]*:)\n(?P<value>(?:  [^\n]*\n|\n)+)"
)
"""A key, after a question mark if it is long, and the indented lines below it."""


def to_yaml(configurations: Mapping[str, Configuration[Any]]) -> str:
    """Serialize `configurations` by node id, keeping their order."""
    texts: dict[str, str] = {}
    entries = []
    for node_id, configuration in configurations.items():
        content = configuration.model_dump_json()
        if content not in texts:
            texts[content] = _indented(configuration.model_dump(mode="json"))
        key = _text({_escaped_id(node_id): None}).removesuffix(" null\n")
        entries.append(f"{key}\n{texts[content]}")
    return "".join(entries) or "{}\n"


def from_yaml(text: str, load: Callable[[str], Any]) -> Any:
    """Parse such a file with `load`, equal configurations once; any other text as a whole.

    Raises:
        Exception: an error of `load` on the whole text.
    """
    try:
        return dict(_entries(text, load)) or load(text)
    except Exception:  # any error is reported for the whole text
        return load(text)


def _entries(text: str, load: Callable[[str], Any]) -> Iterator[tuple[Any, Any]]:
    values: dict[str, Any] = {}
    keys = set()
    at = 0
    while at < len(text):
        entry = _ENTRY.match(text, at)
        if entry is None:
            raise ValueError(text[at:])
        ((key, _null),) = load(entry["key"]).items()
        if _null is not None or key in keys:
            raise ValueError(entry["key"])
        keys.add(key)
        value = entry["value"]
        if value not in values:
            values[value] = load(value)
        yield key, values[value]
        at = entry.end()


def _escaped_id(node_id: str) -> str:
    """The id as in the journal, with non-UTF-8 parts escaped."""
    return node_id.encode("utf-8", "backslashreplace").decode("utf-8")


def _indented(values: dict[str, Any]) -> str:
    """Lines of `values`, indented below a key."""
    return _text({"_": values}).partition("\n")[2]


def _text(values: Mapping[str, Any]) -> str:
    text: str = yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


LIMIT_BYTES: Final = 256 << 20
"""5,000 benchmarks with their configurations took 15 MB."""

MAX_VALUES: Final = 10_000_000
"""Keys and values, each alias counted as what it stands for: 5,000 benchmarks with a configuration
of 100 keys have 500,000."""

MAX_DEPTH: Final = 100
"""Levels of mappings and lists: a file of gpubench has four."""

_INDENTED: Final = re.compile(rf"^[ \-?:]{{{2 * MAX_DEPTH}}}", re.MULTILINE)
"""A line that is indented, or opens collections, as deep as :data:`MAX_DEPTH` levels are."""

_OPENED: Final = re.compile(r"(?:^|[\s\[\]{},:\"'])[\[{](?!\s*[\]}])", re.MULTILINE)
"""Start of a non-empty bracketed collection; brackets of a node id, ``test_a[fp32]``, follow a
word."""

_PLAIN: Final = (str, int, float, type(None))

_BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_BaseLoader):  # type: ignore[misc] # one of two classes, known at run time
    """Loader of plain values without merge keys (``<<``), which multiply aliases."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Disable merging: ``<<`` becomes an unknown tag and is refused."""


def read(path: Path) -> dict[str, Any]:
    """Read a mapping with text keys, lists and plain values.

    Raises:
        FileNotFoundError: there is none.
        BrokenFile: it is no regular file, too large, nested too deeply, of too many values, no
            YAML, or not such a mapping.
        ResultsError: the operating system does not let it be read.
    """
    data = files.read(path, limit=LIMIT_BYTES)
    try:
        text = data.decode("utf-8")
        _refuse_nested(text, path)
        values = from_yaml(text, lambda part: yaml.load(part, Loader=_Loader))
        if not isinstance(values, dict):
            raise BrokenFile(f"{path} is malformed: not a mapping")
        _SizeLimiter(path).of(values)
    except yaml.YAMLError as error:
        message = " ".join(str(error).split())
        if "maximum nesting depth" in message:  # of PyYAML 6.0.4, which has a limit of its own
            raise _nested(path) from None
        raise BrokenFile(f"{path} is malformed: {message:.300}") from None
    except RecursionError:
        raise _nested(path) from None
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # in text or numbers
        raise BrokenFile(f"{path} is malformed: {error!r:.300}") from None
    except MemoryError:
        raise BrokenFile(f"{path} is too large for memory") from None
    return values


def _refuse_nested(text: str, path: Path) -> None:
    """Refuse deep nesting: scan the text, and if in doubt parse events, without recursion."""
    if not _INDENTED.search(text) and len(_OPENED.findall(text)) <= MAX_DEPTH:
        return
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise _nested(path)


def _nested(path: Path) -> BrokenFile:
    return BrokenFile(f"{path} is nested too deeply, more than {MAX_DEPTH} levels")


class _SizeLimiter:
    """Counts values and depth, visiting aliased nodes once."""

    def __init__(self, path: Path):
        self._path = path
        self._cache: dict[int, tuple[int, int] | None] = {}

    def of(self, value: object, depth: int = 0) -> tuple[int, int]:
        """Number of values in `value`, including itself, and their depth."""
        if isinstance(value, _PLAIN):
            return 1, 0
        if id(value) not in self._cache:
            self._cache[id(value)] = None
            self._cache[id(value)] = self._of_collection(value, depth)
        cached = self._cache[id(value)]
        if cached is None:
            raise BrokenFile(f"{self._path}: an anchor (&) contains itself")
        if cached[0] > MAX_VALUES:
            raise BrokenFile(
                f"{self._path}: more than {MAX_VALUES} values, counting every alias (*) as "
                "its expansion"
            )
        if depth + cached[1] > MAX_DEPTH:
            raise _nested(self._path)
        return cached

    def _of_collection(self, value: object, depth: int) -> tuple[int, int]:
        if depth > MAX_DEPTH:
            raise _nested(self._path)
        if isinstance(value, dict):
            keys = [key for key in value if not isinstance(key, str)]
            if keys:
                raise BrokenFile(f"{self._path}: the key {keys[0]!r:.40} is not text")
            parts = list(value.values())
        elif isinstance(value, list):
            parts = value
        else:
            raise BrokenFile(f"{self._path}: unsupported type {type(value).__name__}")
        extents = [self.of(part, depth + 1) for part in parts]
        return 1 + sum(e[0] for e in extents), 1 + max((e[1] for e in extents), default=0)
