"""Text of messages and reports: lists, plurals, numbers, sizes, quantities, commits, tables."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
Scale = tuple[float, str]

MOST_DIGITS: Final = 4
"""Significant digits of a number: nobody acts on a ten-thousandth of a time."""
_PREFIXES: Final = tuple(enumerate(("", "k", "M", "G", "T", "P")))[::-1]
_BINARY: Final = tuple((1024.0**n, f" {prefix.upper()}iB") for n, prefix in _PREFIXES if n)
_DECIMAL: Final = tuple((1000.0**n, f" {prefix}") for n, prefix in _PREFIXES)
_LONG: Final = 90
"""Seconds from which an estimate is in minutes, and minutes from which it is in hours."""
_LEAST_PLAIN: Final = 1e-6
_MOST_PLAIN: Final = 1e15
"""Numbers outside have an exponent."""
_CHANGE_DECIMALS: Final = 2
"""Decimals of a change in percent: nobody acts on a thousandth of a per cent."""
_MOST_TIMES: Final = 1000
_BEYOND: Final = f"> {_MOST_TIMES}x"
_HUGE_PERCENT: Final = 10_000
"""From here on a change has three digits, and zeros."""
_COMMIT_DIGITS: Final = 9  # git's default is 7, which large repositories outgrow


def listed(texts: Sequence[str], most: int = 5, separator: str = ", ") -> str:
    """Join at most `most` of the `texts` and count the rest: ``a, b and 3 more``."""
    hidden_count = len(texts) - most
    suffix = f"{separator.strip(', ')} and {hidden_count} more" if hidden_count > 0 else ""
    return separator.join(texts[:most]) + suffix


def grouped(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """The values of each key, to say once what several have in common."""
    groups: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def plural(noun: str) -> str:
    """Plural of `noun`: ``runs``, ``launches``."""
    return f"{noun}es" if noun.endswith("ch") else f"{noun}s"


def counted(number: int, noun: str) -> str:
    """Number and noun: ``1 pair``, ``5 pairs``, ``3 launches``."""
    return f"{number} {noun if number == 1 else plural(noun)}"


def short_commit(commit: str | None) -> str:
    """Abbreviated commit hash; empty without one."""
    return (commit or "")[:_COMMIT_DIGITS]


def significant(value: float, digits: int = MOST_DIGITS) -> str:
    """Format `value` in plain decimals: 0.01234, 1.234, 1234, 12345 with 4 `digits`.

    What would be mostly zeros has an exponent: 1.234e-08, 1.234e+18.
    """
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return f"{value:.0f}"
    if not _LEAST_PLAIN <= abs(value) < _MOST_PLAIN:
        return f"{value:.{digits - 1}e}"
    rounded_value = float(f"{value:.{digits - 1}e}")
    decimals = digits - 1 - math.floor(math.log10(abs(rounded_value)))
    return f"{rounded_value if decimals >= 0 else value:.{max(decimals, 0)}f}"


def scaled(value: float, scales: Sequence[Scale], digits: int = MOST_DIGITS) -> str:
    """Format `value` in the largest of `scales` in which it rounds to at least one."""
    factor, name = _fitting(value, scales, digits)
    number = value / factor
    if digits != MOST_DIGITS:
        number = _round(number, digits)
    return f"{significant(number, digits)}{name}"


def _fitting(value: float, scales: Sequence[Scale], digits: int = MOST_DIGITS) -> Scale:
    return next((s for s in scales if _round(abs(value) / s[0], digits) >= 1), scales[-1])


def _round(number: float, digits: int) -> float:
    return float(f"{number:.{digits - 1}e}")


def byte_size(value: float, digits: int = MOST_DIGITS) -> str:
    """Format bytes in binary units: ``912.4 MiB``, ``17 B``."""
    return f"{value:.0f} B" if abs(value) < 1024 else scaled(value, _BINARY, digits)


def duration(seconds: float, digits: int = MOST_DIGITS) -> str:
    """Format a duration in ns, µs, ms or s: ``18.42 ms``."""
    return scaled(seconds, SCALES["s"], digits)


def rough_duration(seconds: float) -> str:
    """Format an estimate, in s, min or h: ``40 s``, ``3 min``, ``1 h 20 min``."""
    if seconds < _LONG:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < _LONG else f"{minutes // 60} h {minutes % 60} min"


def decimal_rate(value: float, unit: str, digits: int = MOST_DIGITS) -> str:
    """Format a rate with a decimal prefix: ``78.20 MFLOP/s``, ``1.500 GB/s``.

    Rates of bytes have decimal prefixes, as in the data sheets of memories and links; sizes have
    binary ones.
    """
    return f"{scaled(value, _DECIMAL, digits)}{unit}"


def ratio(value: float, digits: int = 3) -> str:
    """Format how many times as large or as fast: ``1.83x``, ``24.1x``, ``> 1000x``."""
    if value > _MOST_TIMES:
        return _BEYOND
    return f"{significant(float(f'{value:.{digits - 1}e}'), digits)}x"


def percentage(fraction: float, digits: int = 2) -> str:
    """Format a fraction as a percentage, the one way in all messages: ``0.62%``, ``41%``."""
    return f"{significant(fraction * 100, digits)}%"


def change_percentage(change: float, digits: int = 2, *, with_sign: bool = False) -> str:
    """Format a relative change, with two decimals at most: ``0.06%``, ``+4.1%``, ``12%``.

    None rounds to 100% that is less, ``-99.94%``, and larger ones than by a factor of a thousand
    are all equal: ``> 1000x``. With one of `digits` it is rounded: ``+80%``, ``> 90%``.
    """
    percent, sign = change * 100, "+" * with_sign
    if abs(change) > _MOST_TIMES:
        return _BEYOND
    if digits == 1 and 95 <= abs(percent) < 100:
        return f"{'<' if change < 0 else '>'} {math.copysign(90, change):{sign}.0f}%"
    if digits == 1:
        percent = float(f"{percent:.0e}")
    if not abs(percent) < _HUGE_PERCENT:
        return f"{float(f'{percent:.2e}'):{sign}.0f}%"
    rounded = float(f"{abs(percent):.{digits - 1}e}")
    decimals = _CHANGE_DECIMALS
    if rounded and not abs(percent) < 100 <= rounded:
        decimals = min(max(digits - 1 - math.floor(math.log10(rounded)), 0), _CHANGE_DECIMALS)
    text = f"{percent:{sign}.{decimals}f}%"
    return text if text.strip("+-0.%") else "0.00%"


_THOUSANDS: Final = tuple((1000.0**n, prefix) for n, prefix in _PREFIXES[1:])


def count(value: float, digits: int = MOST_DIGITS) -> str:
    """Format a count or rate without unit: ``434.2``, ``12.34k``, ``1.234M``."""
    return scaled(value, _THOUSANDS, digits)


def quantity(value: float, unit: str) -> str:
    """A metric's value with its unit: ``18.42 ms``, ``912.4 MiB``, ``12.34k/s``, ``3.100 W``."""
    if unit == "bytes":
        return byte_size(value)
    if unit == "fraction":
        return percentage(value)
    return scaled(value, _scales(unit))


def scale_of(value: float, unit: str) -> Scale:
    """What a `value` is divided by where it is shown, and the unit then: ``(1e-6, " µs")``."""
    return _fitting(value, _scales(unit))


def _scales(unit: str) -> Sequence[Scale]:
    return SCALES.get(unit, ((1.0, f" {unit}"),))


_PER_S: Final = tuple((factor, f"{name}/s") for factor, name in _THOUSANDS)
SCALES: Final[Mapping[str, Sequence[Scale]]] = {
    "s": ((1.0, " s"), (1e-3, " ms"), (1e-6, " µs"), (1e-9, " ns")),
    "bytes": (*_BINARY, (1.0, " B")),
    "bytes/s": tuple((factor, f"{name}B/s") for factor, name in _DECIMAL),
    "TFLOP/s": tuple((factor / 1e12, f"{name}FLOP/s") for factor, name in _DECIMAL),
    "fraction": ((0.01, "%"),),
    "samples/s": _PER_S,
    "tokens/s": _PER_S,
    "count": _THOUSANDS,
    "1": ((1.0, ""),),
    "": ((1.0, ""),),
}
"""Scales of each unit; any other one follows the number."""


Cell = str | float | None

_FORMULA: Final = re.compile(r"\s*[=+\-@]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def csv_text(rows: Iterable[Iterable[Cell]]) -> str:
    """Format `rows`, the titles first.

    Numbers round-trip exactly, and None is an empty cell. Text that a spreadsheet would run as a
    formula (``=``, ``+``, ``-`` or ``@`` first) gets an apostrophe in front, and control characters
    are escaped (https://owasp.org/www-community/attacks/CSV_Injection).
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(map(_cell_text, row) for row in rows)
    return text.getvalue()


def _cell_text(cell: Cell) -> str:
    if cell is None:
        return ""
    if not isinstance(cell, str):
        return repr(cell) if isinstance(cell, int) else repr(float(cell))
    text = _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), cell)
    return f"'{text}" if _FORMULA.match(text) else text
