"""Variants whose truth is known, measured in turns on a clock that only they move.

The machine is a course, as in :mod:`tests.support.virtual_steps`: a factor on the time of every
call, by the seconds and the calls of all variants since the start.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gpubench_plugin.config.layers import PROFILES
from gpubench_plugin.config.rounds_file import FixedRounds
from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.measure.clocks.base import Task
from gpubench_plugin.measure.clocks.host import CpuClock
from gpubench_plugin.measure.loop import Variant, measure
from gpubench_plugin.ranks.agreement import RankAgreement
from tests.support.fake_cuda import FakeHost
from tests.support.virtual_steps import NS_PER_S, Course

if TYPE_CHECKING:
    from gpubench_plugin.core.records import Samples


class VirtualVariants:
    """Variants that take `steps_s` on a machine without disturbance; `order` lists their calls."""

    def __init__(self, *steps_s: float, machine: Course = lambda _, __: 1.0) -> None:
        self.host = FakeHost()
        self.order: list[int] = []
        self._machine = machine
        self._variants = [
            self._variant(str(number), partial(self._run, number, step_s))
            for number, step_s in enumerate(steps_s)
        ]

    def _variant(self, name: str, step: Any) -> Variant:
        clock, task = CpuClock(self.host.now), Task(step=step)
        first_call_s = clock.time_single_call(task)
        return Variant(name=name, task=task, clock=clock, first_call_s=first_call_s)

    def _run(self, number: int, step_s: float) -> int:
        factor = self._machine(self.host.time_ns / NS_PER_S, len(self.order))
        self.host.spend(max(1, round(step_s * NS_PER_S * factor)))
        self.order.append(number)
        return number

    def measured(
        self,
        *,
        profile: str | None = None,
        fixed_rounds: FixedRounds | None = None,
        on_timed: Any = None,
        **keys: Any,
    ) -> list[Samples]:
        """The samples of each variant, with the keys of `profile`."""
        return measure(
            self._variants,
            section=MeasureSection(**{**PROFILES.get(profile or "", {}), **keys}),
            agreement=RankAgreement(),
            fixed_rounds=fixed_rounds,
            on_timed=on_timed,
        )

    @property
    def results(self) -> list[object]:
        """What the variants' clocks hold after the measurement."""
        return [variant.clock.result for variant in self._variants]
