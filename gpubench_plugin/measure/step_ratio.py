"""Time ratio of two steps, measured alternately."""

from __future__ import annotations

from statistics import median

from gpubench_plugin.measure.clocks.base import Clock, Step, Task

# 20 calls of each step: enough for a median, and few beside the measurement.
_TURNS = 5
_CALLS = 4


def time_ratio(slow: Step, fast: Step, *, clock: Clock) -> float:
    """Ratio of the median durations of `slow` and `fast`.

    They are timed in turns, so that a drift of the machine affects both; the first turn is warm-up.
    """
    tasks = Task(step=slow), Task(step=fast)
    durations_s: tuple[list[float], list[float]] = [], []
    for turn in range(_TURNS + 1):
        for task, recorded_s in zip(tasks, durations_s, strict=True):
            block = clock.block(task, durations=_CALLS)
            if turn > 0:
                recorded_s.extend(block.durations_s)
    slow_s, fast_s = map(median, durations_s)
    return slow_s / fast_s
