"""Configuration layers: later ones win, and every value keeps its source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Key = tuple[str, ...]
"""Path to a value: ``("training", "batch_size")``; users write it with dots."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Nested `values` and their `source` for messages, for example ``configs/mlp.yaml``."""

    source: str
    values: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Merged:
    """Merged values of all layers, with the source of each leaf."""

    values: Mapping[str, Any]
    sources: Mapping[Key, str]

    def get(self, key: Key) -> Any:
        """The value at `key`, or None where there is none."""
        value: Any = self.values
        for part in key:
            if not isinstance(value, Mapping) or part not in value:
                return None
            value = value[part]
        return value

    def source(self, key: Key) -> str:
        """Source of the value at `key`; for a mapping, all sources; empty if unset."""
        for length in range(len(key), 0, -1):
            if key[:length] in self.sources:
                return self.sources[key[:length]]
        leaf_sources = (name for leaf, name in self.sources.items() if leaf[: len(key)] == key)
        return " and ".join(dict.fromkeys(leaf_sources))


def merge(layers: Iterable[Layer]) -> Merged:
    """Merge `layers`: mappings key by key, other values are replaced."""
    values: dict[str, Any] = {}
    stating: dict[Key, str] = {}  # the last layer with a key has also set it, if it is still a leaf
    for layer in layers:
        values = _merged(values, layer.values)
        stating |= {key: layer.source for key, _ in _walk(layer.values)}
    leaves = (key for key, value in _walk(values) if not (isinstance(value, Mapping) and value))
    return Merged(values=values, sources={leaf: stating[leaf] for leaf in leaves})


def nested(key: Key, value: Any) -> dict[str, Any]:
    """`value` wrapped in one mapping per part of `key`."""
    for part in reversed(key):
        value = {part: value}
    mapping: dict[str, Any] = value
    return mapping


PROFILES: Final[Mapping[str, Mapping[str, Any]]] = {
    "quick": {
        "ci_half_width": 0.02,
        "max_time_s": 0.5,
        "time_s": 0.5,
        "warmup_max_rounds": 50,
        "warmup_max_s": 1.0,
    },
    "full": {
        "ci_half_width": 0.005,
        "min_time_s": 1.0,
        "max_rounds": 4000,
        "max_time_s": 20.0,
        "time_s": 20.0,
        "warmup_max_rounds": 500,
        "warmup_max_s": 30.0,
    },
}
"""Measurement profiles: named defaults of the ``measure`` section.

``quick`` is for each change, where many benchmarks share minutes; ``full`` for nightly runs. A key
stated in a file or on the command line wins, wherever the profile was selected.
"""

_PROFILE: Final = ("measure", "profile")


SUSTAINED: Final[Mapping[str, float]] = {
    "warmup_s": 3.0,
    "min_time_s": 10.0,
    "max_time_s": 20.0,
    "time_s": 10.0,
}
"""Minima of the ``measure`` section for preset ``full`` on an accelerator.

Published rates are means over epochs. A device that runs into its power limit lowers its clocks
only after seconds of work.
"""


def default_layers(stated: Merged, *, sustained: bool) -> list[Layer]:
    """Layers below all others: the profile selected in `stated`, and :data:`SUSTAINED`.

    Profile ``quick`` is never sustained; an unknown one is refused by validation.
    """
    name = stated.get(_PROFILE)
    profile = PROFILES.get(name, {}) if isinstance(name, str) else {}
    values = {f"measure.profile={name} ({stated.source(_PROFILE)})": profile}
    if sustained and name != "quick":
        longer = {key: max(value, profile.get(key, value)) for key, value in SUSTAINED.items()}
        values["preset full on an accelerator"] = longer
    return [
        Layer(source=source, values={"measure": _compatible(stated, keys)})
        for source, keys in values.items()
        if keys
    ]


def _compatible(merged: Merged, profile: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a `profile`, with its minima and maxima clipped to the `merged` ones."""
    values = dict(profile)
    for min_key, max_key in (("min_time_s", "max_time_s"), ("min_rounds", "max_rounds")):
        minimum, maximum = merged.get(("measure", min_key)), merged.get(("measure", max_key))
        if _is_greater(values.get(min_key), maximum):
            values[min_key] = maximum
        if _is_greater(minimum, values.get(max_key)):
            values[max_key] = minimum
    return values


def _is_greater(first: object, second: object) -> bool:
    """Whether both are numbers (not validated yet) and the first is greater."""
    return isinstance(first, int | float) and isinstance(second, int | float) and first > second


def _merged(base: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in update.items():
        previous = merged.get(key)
        if isinstance(value, Mapping):
            merged[key] = _merged(previous if isinstance(previous, Mapping) else {}, value)
        else:
            merged[key] = value
    return merged


def _walk(values: Mapping[str, Any], prefix: Key = ()) -> Iterator[tuple[Key, Any]]:
    """All keys with their values, mappings before what is in them."""
    for name, value in values.items():
        key = (*prefix, name)
        yield key, value
        if isinstance(value, Mapping):
            yield from _walk(value, key)
