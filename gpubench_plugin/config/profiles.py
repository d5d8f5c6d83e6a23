"""Defaults of the section ``measure`` under a name: how long one is willing to measure.

``quick`` is for each change, where many benchmarks share minutes; ``full`` for every night. What a
file or the command line says of a key wins, wherever the profile was chosen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.config.layers import Layer, nested

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpubench_plugin.config.layers import Merged

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

_KEY: Final = ("measure", "profile")


def layers(stated: Merged) -> list[Layer]:
    """The layer of the profile that `stated` chooses: below all others, or none."""
    name = stated.get(_KEY)
    if not isinstance(name, str) or name not in PROFILES:
        return []  # validation refuses what there is not
    source = f"measure.profile={name} ({stated.source(_KEY)})"
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
