"""Which metrics of a benchmark are judged, by which limits, and the number that stands for it."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Final

from gpubench_plugin.config.limits import DEFAULT
from gpubench_plugin.runs import Result

STEP_TIME: Final = "step_time_s"
MINIMUM: Final = "step_time_min_s"
THROUGHPUT: Final = ("samples_per_s", "tokens_per_s", "bytes_per_s")
"""Judged without being asked only where the device keeps time: totals by the wall clock vary 20 to
144 % between launches on a CPU."""
MEMORY: Final = "peak_memory_bytes"

_DEVICE_TIMERS: Final = ("cuda_events", "cuda_kernel")


def device_timed(timer: str) -> bool:
    """Whether the device itself took the time, not a clock of the host."""
    return timer.startswith(_DEVICE_TIMERS)


def gated(*launches: Result, limits: Mapping[str, str] = {}) -> dict[str, str]:
    """The metrics to judge with the texts of their limits, which nobody may have checked.

    Those gated by default in any of the `launches` of one benchmark, then all others with a limit.
    Of the limits that launches state the latest one's counts; `limits` override them. A stated one
    whose metric the benchmark does not have is among them all the same.
    """
    default = {name for one in launches for name in _by_default(one)}
    texts: dict[str, str] = {
        name: DEFAULT for name in (STEP_TIME, *THROUGHPUT, MEMORY) if name in default
    }
    for one in launches:
        texts |= one.limits
    return {**texts, **limits}


def _by_default(result: Result) -> list[str]:
    names = (STEP_TIME, *(THROUGHPUT if device_timed(result.timer) else ()), MEMORY)
    return [name for name in names if name in result.metrics]


def value_of(result: Result, metric: str) -> float | None:
    """The number that stands for one run: the median over its launches of the launch statistic.

    The launch statistic of the step time is the median where the device keeps time and the minimum
    where the host does, whose other quantiles move with everything else on the machine. None where
    no launch has the metric.
    """
    name = launch_statistic(result, metric)
    values = [launch[name] for launch in result.launches if name in launch]
    if not values and name in result.metrics:
        values = [result.metrics[name].value]
    return median(values) if values else None


def launch_statistic(result: Result, metric: str) -> str:
    """The metric that stands for `metric` in each launch: itself, or the minimum of its times."""
    if metric != STEP_TIME or device_timed(result.timer):
        return metric
    told = any(MINIMUM in numbers for numbers in (*result.launches, result.metrics))
    return MINIMUM if told else metric
