"""Times of acts on several machines, in an order that agrees with who saw what.

A hybrid logical clock (Kulkarni et al., "Logical Physical Clocks", OPODIS 2014): the time of day,
but never before what has been seen, however far behind a machine's clock is.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from gpubench_plugin.errors import ResultsError


def time_after(seen: str, now: str) -> str:
    """`now`, or the microsecond after `seen` where a clock that is ahead gave that.

    Both are UTC in ISO 8601; an empty `seen` is before everything.

    Raises:
        ResultsError: `seen` is no time, or the last one there is.
    """
    if now > seen:
        return now
    try:
        moment = datetime.fromisoformat(seen) + timedelta(microseconds=1)
    except (ValueError, OverflowError) as error:
        raise ResultsError(f"{seen!r} is no time that another can follow: {error}") from error
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
