"""Quantities: values of metrics in the unit that fits them, for reasons, messages and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gpubench_plugin.core.words import (
    MOST_DIGITS,
    Scale,
    byte_size,
    decimal_rate,
    duration,
    percentage,
    scaled,
    significant,
)

_THOUSANDS: Final[Sequence[Scale]] = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def count(value: float, digits: int = MOST_DIGITS) -> str:
    """Format a count or rate without unit: ``434.2``, ``12.34k``, ``1.234M``."""
    return scaled(value, _THOUSANDS, digits)


def quantity(value: float, unit: str, *, micro: str = "µ") -> str:
    """A metric's value with its unit: ``18.42 ms``, ``912.4 MiB``, ``12.34k/s``, ``3.100 W``."""
    if unit == "s":
        return duration(value, micro=micro)
    format_value = _FORMATTERS.get(unit)
    return format_value(value) if format_value else f"{significant(value)} {unit}"


_FORMATTERS: Final[Mapping[str, Callable[[float], str]]] = {
    "bytes": byte_size,
    "bytes/s": lambda rate: decimal_rate(rate, "B/s"),
    "TFLOP/s": lambda rate: decimal_rate(rate * 1e12, "FLOP/s"),
    "fraction": percentage,
    "samples/s": lambda rate: f"{count(rate)}/s",
    "tokens/s": lambda rate: f"{count(rate)}/s",
    "count": count,
    "1": significant,
    "": significant,
}
"""Formatter of each unit but seconds; any other unit follows the number."""
