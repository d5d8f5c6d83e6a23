"""Numbers as people read them: four significant digits and a fitting prefix."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from gpubench_plugin.reports.glyphs import UNICODE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.reports.glyphs import Glyphs

Scale = tuple[float, str]

_THOUSANDS: Final[Sequence[Scale]] = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_BINARY: Final[Sequence[Scale]] = (
    (2.0**40, "TiB"),
    (2.0**30, "GiB"),
    (2.0**20, "MiB"),
    (2.0**10, "KiB"),
)


def significant(value: float, digits: int = 4) -> str:
    """`value` in plain decimals with `digits` significant ones: 0.01234, 1.234, 1234, 12345."""
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    rounded = float(f"{value:.{digits - 1}e}")
    decimals = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded if decimals >= 0 else value:.{max(decimals, 0)}f}"


def seconds(value: float, glyphs: Glyphs = UNICODE) -> str:
    """A duration in ns, µs, ms or s: ``18.42 ms``."""
    scales = ((1.0, "s"), (1e-3, "ms"), (1e-6, f"{glyphs.micro}s"), (1e-9, "ns"))
    return _scaled(value, scales, gap=" ")


def count(value: float) -> str:
    """A count or a rate without its unit: ``434.2``, ``12.34k``, ``1.234M``."""
    return _scaled(value, _THOUSANDS)


def byte_size(value: float) -> str:
    """An amount of memory in binary units: ``912.4 MiB``, ``17 B``."""
    return f"{value:.0f} B" if abs(value) < 1024 else _scaled(value, _BINARY, gap=" ")


def percentage(fraction: float, digits: int = 2) -> str:
    """A fraction of one in percent with so many significant `digits`: ``0.62%``, ``41%``."""
    return f"{significant(fraction * 100, digits)}%"


def _scaled(value: float, scales: Sequence[Scale], gap: str = "") -> str:
    """`value` in the largest of `scales` in which it is, after rounding, at least one."""
    factor, name = next((s for s in scales if float(f"{abs(value) / s[0]:.3e}") >= 1), scales[-1])
    return f"{significant(value / factor)}{gap}{name}"
