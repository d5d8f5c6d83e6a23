"""Which metrics of a benchmark are judged, by which limits, and the number that stands for it."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Final

from gpubench_plugin.compare.limits import DEFAULT, Limit
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


def gated(result: Result, limits: Mapping[str, str] = {}) -> dict[str, Limit]:
    """The metrics to judge with their limits: those gated by default, then all others with a limit.

    The stated limits are the `result`'s own, overridden by `limits`. A stated one whose metric the
    benchmark does not have is among them all the same.

    Raises:
        UsageProblem: a text is no limit.
    """
    default = (STEP_TIME, *(THROUGHPUT if device_timed(result.timer) else ()), MEMORY)
    texts = {name: DEFAULT for name in default if name in result.metrics}
    texts |= {**result.limits, **limits}
    return {
        name: Limit.parse(text, f"{result.id}: gate.limits.{name}") for name, text in texts.items()
    }


def value_of(result: Result, metric: str) -> float | None:
    """The number that stands for one run: the median over its launches of the launch statistic.

    The launch statistic of the step time is the median where the device keeps time and the minimum
    where the host does, whose other quantiles move with everything else on the machine. None where
    no launch has the metric.
    """
    name = MINIMUM if metric == STEP_TIME and not device_timed(result.timer) else metric
    values = [launch[name] for launch in result.launches if name in launch]
    if not values and name in result.metrics:
        values = [result.metrics[name].value]
    if not values and name != metric:
        values = [launch[metric] for launch in result.launches if metric in launch]
        values = values or ([result.metrics[metric].value] if metric in result.metrics else [])
    return median(values) if values else None
