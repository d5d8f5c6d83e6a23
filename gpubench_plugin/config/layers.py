"""Layers of configuration: each has a source, later ones win, and every value keeps its source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Key = tuple[str, ...]
"""The way to a value: ``("training", "batch_size")``; users write it with dots."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Nested `values` and the `source` that messages name, for example ``configs/mlp.yaml``."""

    source: str
    values: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Merged:
    """The nested values of all layers, and the source of each leaf."""

    values: Mapping[str, Any]
    sources: Mapping[Key, str]

    def get(self, key: Key) -> Any:
        """The value at `key`, or None where there is none."""
        return _at(self.values, key)

    def source(self, key: Key) -> str:
        """Who said the value at `key`; of a mapping, all who said a part of it; else nothing."""
        for length in range(len(key), 0, -1):
            if key[:length] in self.sources:
                return self.sources[key[:length]]
        below = (name for leaf, name in self.sources.items() if leaf[: len(key)] == key)
        return " and ".join(dict.fromkeys(below))


def merge(layers: Iterable[Layer]) -> Merged:
    """All `layers` as one: mappings are merged key by key, anything else is replaced."""
    values: dict[str, Any] = {}
    sources: dict[Key, str] = {}
    for layer in layers:
        values = _merged(values, layer.values)
        for leaf in _leaves(layer.values, ()):
            _record(sources, leaf, layer)
    return Merged(values=values, sources=sources)


def nested(key: Key, value: Any) -> dict[str, Any]:
    """`value` wrapped in one mapping per part of `key`."""
    for part in reversed(key):
        value = {part: value}
    wrapped: dict[str, Any] = value
    return wrapped


PROFILES: Final[Mapping[str, Mapping[str, Any]]] = {
    "quick": {
        "ci_half_width": 0.02,
        "max_rounds": 200,
        "max_time_s": 0.5,
        "time_s": 0.5,
        "warmup_max_rounds": 50,
        "warmup_max_s": 1.0,
    },
    "full": {
        "ci_half_width": 0.005,
        "min_time_s": 1.0,
        "max_rounds": 2000,
        "max_time_s": 20.0,
        "time_s": 20.0,
        "warmup_max_rounds": 500,
        "warmup_max_s": 30.0,
    },
}
"""Defaults of the section ``measure`` under a name: how long one is willing to measure.

``quick`` is for each change, where many benchmarks share minutes; ``full`` for every night. What a
file or the command line states of a key wins, wherever the profile was chosen.
"""

_PROFILE: Final = ("measure", "profile")


def profile_layers(stated: Merged) -> list[Layer]:
    """The layer of the profile that `stated` chooses: below all others, or none."""
    name = stated.get(_PROFILE)
    if not isinstance(name, str) or name not in PROFILES:
        return []  # validation refuses what there is not
    source = f"measure.profile={name} ({stated.source(_PROFILE)})"
    return [Layer(source=source, values=nested(("measure",), _beside(stated, PROFILES[name])))]


def _beside(stated: Merged, profile: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a `profile` that do not contradict what is `stated`.

    Of the least and the most of something the profile's gives way, to the same value.
    """
    values = dict(profile)
    for least, most in (("min_time_s", "max_time_s"), ("min_rounds", "max_rounds")):
        fewest, highest = stated.get(("measure", least)), stated.get(("measure", most))
        if _above(values.get(least), highest):
            values[least] = highest
        if _above(fewest, values.get(most)):
            values[most] = fewest
    return values


def _above(one: object, other: object) -> bool:
    """Whether both are numbers, which validation has not seen yet, and the `one` is greater."""
    return isinstance(one, int | float) and isinstance(other, int | float) and one > other


def _at(values: Mapping[str, Any], key: Key) -> Any:
    value: Any = values
    for part in key:
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(old)
    for key, value in new.items():
        before = both.get(key)
        if isinstance(value, Mapping):
            both[key] = _merged(before if isinstance(before, Mapping) else {}, value)
        else:
            both[key] = value
    return both


def _leaves(values: Mapping[str, Any], prefix: Key) -> Iterator[Key]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*prefix, key))
        else:
            yield (*prefix, key)


def _record(sources: dict[Key, str], leaf: Key, layer: Layer) -> None:
    """A leaf takes the place of what stood at it, above it and below it."""
    below = [old for old in sources if len(old) > len(leaf) and old[: len(leaf)] == leaf]
    if below and _at(layer.values, leaf) == {}:
        return  # an empty mapping adds nothing to one that is there
    for old in [*below, *(leaf[:length] for length in range(1, len(leaf)))]:
        sources.pop(old, None)
    sources[leaf] = layer.source
