"""Logical time stamps consistent with causality across machines.

A hybrid logical clock (Kulkarni et al., "Logical Physical Clocks", OPODIS 2014): the time of day,
but never before what has been seen, however far behind a machine's clock is.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from gpubench_plugin.core.errors import ResultsError


def time_after(previous: str, current: str) -> str:
    """`current`, or the microsecond after `previous` if that is later (clock skew).

    Both are UTC in ISO 8601; an empty `previous` is before everything.

    Raises:
        ResultsError: `previous` is no time, or the last one there is.
    """
    if current > previous:
        return current
    try:
        successor = datetime.fromisoformat(previous) + timedelta(microseconds=1)
    except (ValueError, OverflowError) as error:
        raise ResultsError(f"{previous!r} has no successor: {error}") from error
    return successor.isoformat(timespec="microseconds").replace("+00:00", "Z")
