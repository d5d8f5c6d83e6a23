"""Preparation of a step for its timing: warm-up, and calibration of its clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpubench_plugin.measure.warmup import WarmUp, warm_up

if TYPE_CHECKING:
    from gpubench_plugin.config.sections import MeasureSection
    from gpubench_plugin.measure.clocks.base import Clock, Task
    from gpubench_plugin.measure.plan import Pace
    from gpubench_plugin.ranks.process_group import RankAgreement

COSTLY_CALL_S = 1.0
"""Seconds of a call, with its setup and teardown, from which no further calls are spent on it: a
cold start or a compilation, whose flags are not worth minutes. Not measured."""

_FEW_CALLS = 10
"""Number of calls, of warm-up and ``measure.steps``, below which none are spent on calibrating the
clock either. Not measured."""


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """First call, warm-up and calibration of one step; equal on every rank but for the times."""

    first_call_s: float
    warmup: WarmUp
    steady: bool
    calibration_calls: int

    @property
    def pace(self) -> Pace:
        """Pace of the last rounds of the warm-up."""
        return self.warmup.pace

    @property
    def is_costly(self) -> bool:
        """Whether a call takes so long that none is spent on anything but the measurement."""
        return self.pace.wall_s >= COSTLY_CALL_S


def prepare(
    task: Task,
    *,
    clock: Clock,
    section: MeasureSection,
    agreement: RankAgreement,
    first_call_s: float,
    is_counted: bool,
) -> Preparation:
    """Warm `task` up to its steady state and calibrate the `clock`.

    Where the calls are counted (``measure.by=steps``) and few, none are spent on the calibration.
    """
    warmup = warm_up(
        task, clock=clock, section=section, agreement=agreement, first_call_s=first_call_s
    )
    steady = bool(agreement.decide(int(warmup.steady)))
    is_few = is_counted and warmup.calls + section.steps < _FEW_CALLS
    is_costly = warmup.pace.wall_s >= COSTLY_CALL_S
    is_calibrated = not agreement.decide(int(is_few or is_costly))
    clock.calibrate(task, may_call=is_calibrated)
    return Preparation(
        first_call_s=first_call_s,
        warmup=warmup,
        steady=steady,
        calibration_calls=clock.calibration_calls if is_calibrated else 0,
    )
