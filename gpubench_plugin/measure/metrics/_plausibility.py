"""Checks that refuse impossible numbers, and the totals, rates and medians that metrics share.

A number that cannot be true is refused, with the reason, instead of being reported.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from math import fsum

from gpubench_plugin.errors import MeasurementError
from gpubench_plugin.measure.metrics._peaks import (
    CACHE_FACTOR,
    CACHED_BYTES,
    CORE_BYTES_PER_S,
    CORE_FLOPS_PER_S,
    OPERATIONS_FACTOR,
    ceilings_of,
    flops_peak,
)
from gpubench_plugin.records import Metric, Observation, Samples


def timed_s(samples: Samples) -> float:
    """The length of all timed blocks, in seconds."""
    return fsum(samples.block_s)


def per_second(amount: float, samples: Samples) -> float:
    """The rate at which an `amount` of work per call was done.

    A rate is total work over total time, never work over a median: the median hides every stall
    that hits fewer than half of the calls.
    """
    return amount * samples.calls / timed_s(samples)


def flops_per_device(seen: Observation) -> float | None:
    """FLOP/s of one device, the mean over the ranks; None where no operations were counted.

    TFLOP/s and MFU are about this rate.

    Each rank has one device, so the sum of all ranks' work is divided by their number. Per device
    is how the field reports it: A. Chowdhery et al., PaLM (2022), appendix B,
    https://arxiv.org/abs/2204.02311.
    """
    if not seen.work.flops:
        return None
    return per_second(seen.work.flops, seen.samples) / seen.world_size


def check_times(seen: Observation) -> None:
    """Refuse times that are not there, not finite, or not longer than nothing.

    Raises:
        MeasurementError: naming the clock, the time and what was timed.
    """
    timer = seen.samples.timer
    _check_times(f"duration of {timer}", seen.samples.durations_s)
    _check_times(f"block of {timer}", seen.samples.block_s)
    if (sketch := seen.samples.sketch) is not None:
        _check_times(f"shortest duration of {timer}", (sketch.least,))
        _check_times(f"total of the durations of {timer}", (sketch.total,))
    for rank in seen.ranks:  # a clock that stood still is not hidden by the slower ranks'
        _check_times(f"shortest duration of {timer} on rank {rank.rank}", (rank.min_s,))
        _check_times(f"longest duration of {timer} on rank {rank.rank}", (rank.max_s,))
        _check_times(f"total of {timer} on rank {rank.rank}", (rank.total_s,))


def check_values(metrics: Mapping[str, Metric], seen: Observation) -> None:
    """Refuse metrics that are not finite, rates of nothing, and more than a device can do.

    Raises:
        MeasurementError: naming the metric, its value and what contradicts it.
    """
    for metric in metrics.values():
        if not math.isfinite(metric.value):
            raise MeasurementError(f"{metric.name} is {metric.value} {metric.unit}")
        if metric.unit.endswith("/s") and metric.value <= 0:
            reason = "the work of a call is not above zero"
            raise MeasurementError(f"{metric.name} is {metric.value} {metric.unit}: {reason}")
    if "mfu" in metrics and metrics["mfu"].value > 1:
        raise _above_peak(metrics["mfu"].value, seen)
    for rate, unit, most, why in _ceilings(metrics, seen):
        if rate > most:
            stated = "FLOPs" if unit == "FLOP/s" else "bytes"
            raise MeasurementError(
                f"{rate:.4g} {unit} per device, but {seen.device_name} does no more than "
                f"{most:.4g} ({why}); the {stated} of a call or the clock are wrong"
            )


def _ceilings(
    metrics: Mapping[str, Metric], seen: Observation
) -> Iterator[tuple[float, str, float, str]]:
    """Each rate per device that something limits, its unit, the highest that can be true, and why.

    Of a CPU whose processors nobody counted there is none.
    """
    flops = flops_per_device(seen) or 0.0
    moved = per_second(seen.work.bytes or 0.0, seen.samples) / seen.world_size
    if seen.device == "cpu":
        if cores := seen.facts.get("processors", 0.0):
            yield flops, "FLOP/s", cores * CORE_FLOPS_PER_S, f"{cores:g} processors"
            yield moved, "bytes/s", cores * CORE_BYTES_PER_S, f"{cores:g} processors"
        return
    known = ceilings_of(seen.device_name)
    most = max(known.tflops.values()) * 1e12 * OPERATIONS_FACTOR
    why = f"{OPERATIONS_FACTOR:g} times the highest dense peak, {known.source}"
    yield flops, "FLOP/s", most, why
    cached = (seen.work.bytes or 0.0) / seen.world_size < CACHED_BYTES
    most = known.memory * 1e9 * (CACHE_FACTOR if cached else 1.0)
    yield moved, "bytes/s", most, known.source
    if "busbw_bytes_per_s" in metrics:
        busbw = metrics["busbw_bytes_per_s"].value
        yield busbw, "bytes/s between devices", known.link * 1e9, known.source


def _check_times(what: str, times_s: Sequence[float]) -> None:
    if not times_s:
        raise MeasurementError(f"there is no {what}: nothing was timed")
    # A sum is finite only if every part is, and it takes no step of Python per part.
    if min(times_s) > 0 and math.isfinite(sum(times_s)):
        return
    at = next(i for i, time_s in enumerate(times_s) if not 0 < time_s < math.inf)
    count = f"{at + 1} of {len(times_s)}"
    raise MeasurementError(f"{what}, {count}, is {times_s[at]} s; a time is finite and above zero")


def _above_peak(mfu: float, seen: Observation) -> MeasurementError:
    rate, peak = flops_per_device(seen) or 0.0, flops_peak(seen.device_name, seen.precision)
    stated = f"{peak.flops_per_s / 1e12:g} TFLOP/s ({peak.source})" if peak else "unknown"
    return MeasurementError(
        f"MFU is {mfu:.0%}: {rate / 1e12:.4g} TFLOP/s per device, while the dense {seen.precision} "
        f"peak of {seen.device_name} is {stated}; the FLOPs of a call or the clock are wrong"
    )


def rounds_s(samples: Samples) -> tuple[float, ...]:
    """The rounds in seconds per call; where the durations do not fill one, the durations."""
    return samples.rounds_s or samples.durations_s


def median_step_s(samples: Samples) -> float:
    """The median round, in seconds per call: what ``step_time_s`` is of one rank or of all."""
    import numpy as np

    return float(np.median(np.asarray(rounds_s(samples))))
