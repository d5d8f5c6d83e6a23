"""Writing resolved configurations as YAML, for ``config_resolved.yaml``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from gpubench_plugin.configuration.reading import CoreSchema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpubench_plugin.configuration.schema import Configuration


class _Dumper(yaml.SafeDumper):
    """Puts text in quotes that YAML 1.1 or YAML 1.2 would read as something else."""


for _resolvers in CoreSchema.yaml_implicit_resolvers.values():
    for _tag, _pattern in _resolvers:
        _Dumper.add_implicit_resolver(_tag, _pattern, None)


def to_yaml(configurations: Mapping[str, Configuration[Any]]) -> str:
    """The resolved `configurations` by node id, in their order, keys in the schema's order."""
    plain = {node_id: each.model_dump(mode="json") for node_id, each in configurations.items()}
    return yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
