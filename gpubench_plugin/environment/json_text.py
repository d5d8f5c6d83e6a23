"""JSON as RFC 8259 has it: no NaN, no infinity, no lone surrogate, keys are strings."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any


def text(value: object, *, indent: int | None = None) -> str:
    """`value` as ASCII JSON text; see :func:`plain` for what becomes of other types."""
    return json.dumps(plain(value), indent=indent, allow_nan=False)


def plain(value: object, *, lost: dict[str, str] | None = None, pointer: str = "") -> Any:
    """`value` in JSON's own types.

    Tuples and sets become lists, arrays and scalars of other libraries Python's own, all else
    its text. A number that is not finite becomes null: JSON has no word for it. Where `lost` is
    given, it receives the JSON pointer (RFC 6901) of each such number and ``nan``, ``inf`` or
    ``-inf``.
    """
    if callable(own := getattr(value, "tolist", None)):
        value = own()
    if isinstance(value, Mapping):
        return {
            well_formed(str(k)): plain(v, lost=lost, pointer=f"{pointer}/{_escaped(str(k))}")
            for k, v in value.items()
        }
    if isinstance(value, AbstractSet):
        value = sorted(value, key=str)
    if isinstance(value, list | tuple):
        return [plain(v, lost=lost, pointer=f"{pointer}/{i}") for i, v in enumerate(value)]
    if isinstance(value, float):
        return _finite(value, lost, pointer)
    return value if value is None or isinstance(value, int) else well_formed(str(value))


def well_formed(string: str) -> str:
    """`string` with lone surrogates, as in a file name that is not UTF-8, written as escapes."""
    return string.encode("utf-8", "backslashreplace").decode("utf-8")


def _finite(number: float, lost: dict[str, str] | None, pointer: str) -> float | None:
    if math.isfinite(number):
        return number
    if lost is not None:
        lost[pointer] = str(number)
    return None


def _escaped(key: str) -> str:
    return well_formed(key).replace("~", "~0").replace("/", "~1")
