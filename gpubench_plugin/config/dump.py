"""``config_resolved.yaml``: resolved configurations by node id, written and read.

Thousands of benchmarks have few configurations between them. Each stands there in full, to be read
where it is needed, but is turned into text, and back, once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import yaml

from gpubench_plugin.config.yaml_reader import CoreSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpubench_plugin.config.sections import Configuration

# libyaml, where PyYAML was built with it, takes a tenth of the time.
_BASE: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_BASE):  # type: ignore[misc] # of whichever class there is
    """Puts text in quotes that YAML 1.1 or YAML 1.2 would read as something else."""


for _resolvers in CoreSchema.yaml_implicit_resolvers.values():
    for _tag, _pattern in _resolvers:
        _Dumper.add_implicit_resolver(_tag, _pattern, None)

_ENTRY: Final = re.compile(
    r"(?P<key>\? [^\n]*\n(?:  [^\n]*\n)*:|[^\s?#-][^\n]*:)\n(?P<value>(?:  [^\n]*\n|\n)+)"
)
"""A key, which may stand after a question mark if it is long, and the indented lines below it."""


def to_yaml(configurations: Mapping[str, Configuration[Any]]) -> str:
    """The resolved `configurations` by node id, in their order, keys in the schema's order."""
    texts: dict[str, str] = {}
    entries = []
    for node_id, configuration in configurations.items():
        content = configuration.model_dump_json()
        if content not in texts:
            texts[content] = _indented(configuration.model_dump(mode="json"))
        key = _text({_well_formed(node_id): None}).removesuffix(" null\n")
        entries.append(f"{key}\n{texts[content]}")
    return "".join(entries) or "{}\n"


def from_yaml(text: str, load: Callable[[str], Any]) -> Any:
    """What `load` makes of the `text` of such a file; equal configurations are the same object.

    Written by hand or damaged, it is loaded as a whole.

    Raises:
        Exception: what `load` raises of the whole.
    """
    try:
        return dict(_entries(text, load)) or load(text)
    except Exception:  # whatever is wrong is said of the whole
        return load(text)


def _entries(text: str, load: Callable[[str], Any]) -> Iterator[tuple[Any, Any]]:
    values: dict[str, Any] = {}
    keys = set()
    at = 0
    while at < len(text):
        entry = _ENTRY.match(text, at)
        if entry is None:
            raise ValueError(text[at:])
        ((key, nothing),) = load(entry["key"]).items()
        if nothing is not None or key in keys:
            raise ValueError(entry["key"])
        keys.add(key)
        value = entry["value"]
        if value not in values:
            values[value] = load(value)
        yield key, values[value]
        at = entry.end()


def _well_formed(node_id: str) -> str:
    """The id as the journal has it: of a file whose name is not UTF-8, with escapes."""
    return node_id.encode("utf-8", "backslashreplace").decode("utf-8")


def _indented(values: dict[str, Any]) -> str:
    """The lines of `values` as they stand below a key."""
    return _text({"_": values}).partition("\n")[2]


def _text(values: Mapping[str, Any]) -> str:
    text: str = yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text
