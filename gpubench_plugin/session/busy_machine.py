"""What a busy machine costs, told once while it can still be changed."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from gpubench_plugin.core.format import rough_duration
from gpubench_plugin.core.quality_flags import CONTENDED

if TYPE_CHECKING:
    from gpubench_plugin.config.sections import MeasureSection
    from gpubench_plugin.core.records import Measurement

_TOLD_AT: Final = 3
"""Contended benchmarks after which it is told: one or two may be chance."""


class BusyMachine:
    """Contended benchmarks of a session that the profile ``quick`` would shorten."""

    def __init__(self) -> None:
        self._spent_s: list[float] = []

    def line(self, measurement: Measurement, spent_s: float, section: MeasureSection) -> str | None:
        """After the third one, what each costs, and which option halves it."""
        if CONTENDED not in measurement.flags or section.by == "steps" or section.profile:
            return None
        self._spent_s.append(spent_s)
        if len(self._spent_s) != _TOLD_AT:
            return None
        return (
            f"other processes use the CPU: each benchmark takes about "
            f"{rough_duration(median(self._spent_s))}; --measure.profile=quick halves that"
        )
