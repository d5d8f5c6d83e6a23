"""How much faster one step is than another, measured in turns."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from gpubench_plugin.measure.clocks import Task

if TYPE_CHECKING:
    from gpubench_plugin.measure.clocks import Clock, Step

_TURNS = 5
_CALLS = 4


def time_ratio(slow: Step, fast: Step, *, clock: Clock) -> float:
    """How many times as long `slow` takes as `fast`: the ratio of their median durations.

    They are timed in turns, so that a machine that becomes slower does so for both; the first turn
    of each does not count.
    """
    slow_s, fast_s = (_Timed(step, clock) for step in (slow, fast))
    for _ in range(_TURNS + 1):
        slow_s.turn()
        fast_s.turn()
    return slow_s.median_s / fast_s.median_s


class _Timed:
    """One of the two, and how long its calls took."""

    def __init__(self, step: Step, clock: Clock) -> None:
        self._task = Task(step=step)
        self._clock = clock
        self._turns: list[list[float]] = []

    def turn(self) -> None:
        block = self._clock.block(self._task, durations=_CALLS)
        self._turns.append(list(block.durations_s))

    @property
    def median_s(self) -> float:
        return median(seconds for turn in self._turns[1:] for seconds in turn)
