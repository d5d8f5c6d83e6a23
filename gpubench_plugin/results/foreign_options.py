"""The options of pytest-benchmark that change numbers, and the clock, as its files name them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMER: Final = "perf_counter"
"""pytest-benchmark's own clock, wall time of the host: that of files that name none."""

SECTION: Final = "pytest_benchmark"
"""What the dot keys begin with."""

_DEFAULTS: Final[Mapping[str, Any]] = {
    "disable_gc": False,
    "min_rounds": 5,
    "min_time": 0.000005,
    "max_time": 1.0,
    "calibration_precision": 10,
    "precision": None,
    "confidence": 0.99,
    "warmup": False,
    "warmup_iterations": 100_000,
    "iterations": 1,
    "warmup_rounds": 0,
}
"""``rounds`` has none: only pedantic tests state them, and so say that they are pedantic."""


def timer_of(options: Mapping[str, Any]) -> str:
    """The name of the clock that the `options` of a benchmark in a file name."""
    timer = options.get("timer")
    return timer if isinstance(timer, str) and timer else TIMER


def told(options: Mapping[str, Any], *, pedantic: bool = False) -> dict[str, Any]:
    """Those of the `options` that bear on the numbers, defaults included; none of what is no value.

    Options of ours, which stand in the same place for benchmarks of ours, are none of them. A
    `pedantic` test states its rounds itself: rules that end measuring do not bear on it.
    """
    if not isinstance(options.get("disable_gc"), bool):
        return {}
    found: dict[str, Any] = {"disable_gc": options["disable_gc"]}
    if pedantic:
        return found
    for name in ("min_rounds", "min_time", "max_time", "calibration_precision"):
        if _is_finite_number(options.get(name)):
            found[name] = options[name]
    return {**found, **_until_precise(options), **_warmup(options)}


def settings_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Of what is :func:`told` that which is no default, by dot key."""
    stated = {
        n: value for n, value in options.items() if n not in _DEFAULTS or value != _DEFAULTS[n]
    }
    return by_dot_key(stated)


def by_dot_key(options: Mapping[str, Any]) -> dict[str, Any]:
    """All that is :func:`told`, by dot key."""
    return {f"{SECTION}.{name}": value for name, value in options.items()}


def is_pedantic(settings: Mapping[str, Any]) -> bool:
    """Whether settings by dot key are those of a pedantic test."""
    return f"{SECTION}.rounds" in settings


def _until_precise(options: Mapping[str, Any]) -> dict[str, Any]:
    """Old versions know no such rule; the level of confidence counts where there is one."""
    if "precision" not in options:
        return {}
    if not _is_finite_number(options["precision"]):
        return {"precision": None}
    names = ("precision", "confidence")
    return {name: options[name] for name in names if _is_finite_number(options.get(name))}


def _warmup(options: Mapping[str, Any]) -> dict[str, Any]:
    """Told as a number of calls, or as false."""
    warmup = options.get("warmup")
    if isinstance(warmup, bool) or warmup == 0:
        return {"warmup": bool(warmup)}
    return {"warmup": True, "warmup_iterations": warmup} if _is_finite_number(warmup) else {}


def _is_finite_number(value: object) -> bool:
    """Whether it is a finite one; what is true or false is none."""
    try:
        return (
            isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        )
    except OverflowError:  # a whole number of hundreds of digits
        return False
