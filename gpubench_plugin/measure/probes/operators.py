"""Operators of profiled steps by their own time, per step."""

from __future__ import annotations

import re
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.environment.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.core.records import Json

MOST: Final = 20
"""Operators on record: a step has some hundred, of which few take its time."""

_LONGEST_NAME: Final = 120
_MARKERS: Final = re.compile(r"step \d+|ProfilerStep.*")
"""Spans of whole steps, ours and torch's."""

_MICROSECOND: Final = 1e-6


def operator_table(averages: Sequence[Any], *, steps: int, on_device: bool) -> Json | None:
    """The operators with the most time of their own, at most :data:`MOST`, for the record.

    `averages` are ``key_averages()`` of `steps` profiled steps; all numbers are per step. The time
    is the device's, of the kernels that an operator starts, or the processor's where no device has
    worked. ``self_s`` is without the operators that an operator calls, ``total_s`` with them, and
    the share is that of the self time of all operators. None if there are none.
    """
    operators = [
        average
        for average in averages
        if average.device_type.name == "CPU" and not _MARKERS.fullmatch(average.key)
    ]
    places = ("device", "cpu") if on_device else ("cpu",)
    for place in places:
        own_us, total_us = attrgetter(f"self_{place}_time_total"), attrgetter(f"{place}_time_total")
        sum_us = sum(map(own_us, operators))
        if not sum_us > 0:
            continue
        busiest = sorted(operators, key=own_us, reverse=True)[:MOST]
        return {
            "time_of": place,
            "steps": steps,
            "operators": len(operators),
            "self_s": sum_us * _MICROSECOND / steps,
            "top": [
                {
                    "name": redact(average.key)[:_LONGEST_NAME],
                    "calls": average.count / steps,
                    "self_s": own_us(average) * _MICROSECOND / steps,
                    "total_s": total_us(average) * _MICROSECOND / steps,
                    "share": own_us(average) / sum_us,
                }
                for average in busiest
                if own_us(average) > 0
            ],
        }
    return None
