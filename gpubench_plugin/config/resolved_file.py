"""``config_resolved.yaml``: resolved configurations by node id.

Thousands of benchmarks share few configurations: each is written once, with an anchor (``&id001``),
and stands for the others as an alias (``*id001``), as any reader of YAML understands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import yaml

from gpubench_plugin.config import yaml_reader

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpubench_plugin.config.sections import Configuration


# libyaml, where PyYAML was built with it, takes a tenth of the time.
_BaseDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

_LIMIT_BYTES: Final = 64 << 20
"""A thousand different configurations take 3 MB."""


class _Dumper(_BaseDumper):  # type: ignore[misc] # one of two classes, known at run time
    """Quotes text that YAML 1.1 or YAML 1.2 would read as another type."""


for _name, _pattern in yaml_reader.RESOLVERS.items():
    _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", _pattern, None)


def to_yaml(configurations: Mapping[str, Configuration[Any]]) -> str:
    """Serialize `configurations` by node id, keeping their order."""
    shared: dict[str, Any] = {}
    values = {}
    for node_id, configuration in configurations.items():
        content = configuration.model_dump_json()
        if content not in shared:
            shared[content] = configuration.model_dump(mode="json")
        # As in the journal, a path that is not UTF-8 is escaped.
        values[node_id.encode("utf-8", "backslashreplace").decode("utf-8")] = shared[content]
    text: str = yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


def read(path: Path) -> dict[str, Any]:
    """Read the configurations by node id.

    Raises:
        BrokenFile: it cannot be read, or is no mapping of plain values.
    """
    return yaml_reader.read(path, str(path), limit=_LIMIT_BYTES)
