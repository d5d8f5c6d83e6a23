"""A benchmark's result in a few words, behind its outcome in a verbose session."""

from __future__ import annotations

from typing import Final

from gpubench_plugin.core.format import change_percentage
from gpubench_plugin.core.quality_flags import doubtful_flags
from gpubench_plugin.core.records import Measurement, Result
from gpubench_plugin.reports.columns import half_width, step
from gpubench_plugin.reports.text import Glyphs

_STEP: Final = "step_time_s"


def result_line(measurement: Measurement, earlier: Result | None, glyphs: Glyphs) -> str:
    """Step time, its change, and a mark: ``374.7 µs ±0.9%  +3.1% ✓``; empty without a step time.

    The change is that from the `earlier` result. A number in doubt has none, and one from a number
    in doubt is marked. The mark tells a number that can be trusted from one in doubt, or without an
    interval.
    """
    text = step(measurement, glyphs)
    if not text:
        return ""
    change = _change(measurement, earlier, glyphs)
    mark = glyphs.trusted if _is_trusted(measurement) else glyphs.in_doubt
    return f"{text}{'  ' * bool(change)}{change} {mark}"


def _is_trusted(measurement: Measurement) -> bool:
    """Whether the step time has an interval and no doubts."""
    return half_width(measurement, _STEP) is not None and not doubtful_flags(measurement.flags)


def _change(measurement: Measurement, earlier: Result | None, glyphs: Glyphs) -> str:
    """Change of the step time in percent: positive is slower."""
    before = None if earlier is None else earlier.metrics.get(_STEP)
    if earlier is None or before is None or before.value <= 0:
        return ""
    if doubtful_flags(measurement.flags):
        return ""
    change = measurement.metrics[_STEP].value / before.value - 1
    doubt = glyphs.doubtful if doubtful_flags(earlier.flags) else ""
    return f"{doubt}{change_percentage(change, with_sign=True)}"
