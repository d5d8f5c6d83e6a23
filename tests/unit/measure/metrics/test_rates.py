from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core.records import Work
from gpubench_plugin.measure.metrics.ranks import bandwidth
from gpubench_plugin.measure.metrics.throughput import (
    log_rate_half_width,
    mfu,
    rate_flags,
    tflops,
    throughput,
)
from tests.support import virtual_steps as steps
from tests.support.observations import observe, sampled

if TYPE_CHECKING:
    from gpubench_plugin.core.records import Observation, Samples
    from gpubench_plugin.measure.metrics.base import MetricSource


BUS = {"collective_bytes": 12.0, "bus_factor": 1.5}


def computed(source: MetricSource, seen: Observation) -> dict[str, float]:
    return {metric.name: metric.value for metric in source(seen)}


def test_throughput_is_total_work_over_total_time() -> None:
    """Ten calls of 12 samples in blocks of 1.6 and 4.4 s are 20 samples per second."""
    seen = observe(work=Work(samples=12, tokens=6, bytes=3))
    assert computed(throughput, seen) == pytest.approx(
        {"samples_per_s": 20.0, "tokens_per_s": 10.0, "bytes_per_s": 5.0}
    )


def test_a_stall_lowers_the_throughput() -> None:
    """One slow call in five takes 3 samples per second to 1, though the median stays 1 s."""
    stalling = sampled(durations_s=(1.0, 1.0, 1.0, 1.0, 11.0), block_s=(15.0,), block_calls=(5,))
    seen = observe(samples=stalling, work=Work(samples=3))
    assert computed(throughput, seen) == {"samples_per_s": 1.0}


def blocks(block_s: list[float], calls: int = 5) -> Samples:
    return sampled(block_s=tuple(block_s), block_calls=(calls,) * len(block_s))


def test_a_rate_has_an_interval_from_ten_blocks_on() -> None:
    """Worked out by hand: ten blocks of 5 calls in 0.9 and 1.1 s by turns, 15 samples a call.

    The residuals are ±0.1 s, so the total of 10 s has a standard error of √(10·0.01·10/9), and t
    with 9 degrees of freedom is 2.262.
    """
    ten = blocks([0.9, 1.1] * 5)
    found = computed(throughput, observe(samples=ten, work=Work(samples=15)))
    deviation = 2.2621571627982 * (0.1 * 10 / 9) ** 0.5 / 10
    assert found == pytest.approx(
        {
            "samples_per_s": 75.0,
            "samples_ci_low_per_s": 75.0 * math.exp(-deviation),
            "samples_ci_high_per_s": 75.0 * math.exp(deviation),
        }
    )
    nine = blocks([1.0] * 9)
    assert list(computed(throughput, observe(samples=nine, work=Work(samples=15)))) == [
        "samples_per_s"
    ]


def test_the_interval_of_a_rate_has_the_confidence_that_is_asked_for() -> None:
    """At 99%, t with 9 degrees of freedom is 3.250 instead of 2.262."""
    ten, deviations = blocks([0.9, 1.1] * 5), []
    for confidence in (0.95, 0.99):
        seen = observe(samples=ten, work=Work(samples=15), facts={"confidence": confidence})
        deviations.append(math.log(computed(throughput, seen)["samples_ci_high_per_s"] / 75.0))
    assert deviations[1] / deviations[0] == pytest.approx(3.2498 / 2.2622, rel=1e-4)


def test_blocks_of_unequal_length_at_one_pace_are_no_spread() -> None:
    """The last block is shorter than the others, and no slower."""
    paced = sampled(block_s=(*[2.0] * 12, 0.5), block_calls=(*[8] * 12, 2))
    rates = computed(bandwidth, observe(samples=paced, facts=BUS))
    found = {name: value for name, value in rates.items() if name.startswith("busbw")}
    assert len({round(value, 6) for value in found.values()}) == 1
    assert set(found) == {
        "busbw_bytes_per_s",
        "busbw_ci_low_bytes_per_s",
        "busbw_ci_high_bytes_per_s",
    }


@pytest.mark.parametrize(("persistence", "least"), [(0.0, 0.92), (0.5, 0.90), (0.9, 0.70)])
def test_the_interval_of_a_rate_covers_the_true_one(persistence: float, least: float) -> None:
    """Of 100 blocks, also where each depends on the one before."""
    chance, covered, trials = random.Random(7), 0, 400
    for _ in range(trials):
        state, lengths = chance.gauss(0, 1), []
        for _ in range(100):
            state = persistence * state + chance.gauss(0, (1 - persistence**2) ** 0.5)
            lengths.append(1 + 0.05 * state)
        samples = blocks(lengths)
        deviation = log_rate_half_width(samples, 0.95)
        assert deviation is not None
        covered += abs(math.log(math.fsum(lengths) / 100)) <= deviation
    assert covered >= least * trials


@pytest.mark.parametrize(
    ("block_s", "flags"), [(8.9, ("fast_calls",)), (9.2, ()), (10.9, ()), (11.1, ("stalls",))]
)
def test_work_that_the_median_contradicts_is_told_from_work_that_only_varies(
    block_s: float, flags: tuple[str, ...]
) -> None:
    """A tenth more time than the median call promises is a stall; a tenth less is told as well."""
    even = sampled(durations_s=(1.0,) * 10, block_s=(block_s,), block_calls=(10,))
    assert rate_flags(even) == flags


def test_a_median_that_most_calls_make_too_long_is_contradicted() -> None:
    """Eight calls of ten take three times as long: no call takes what the throughput says."""
    samples = steps.measured(lambda _, call: 1.0 if call % 10 < 2 else 3.0, step_s=0.0004)
    assert rate_flags(samples) == ("fast_calls",)


def test_bandwidths_are_of_one_message_whatever_the_number_of_ranks() -> None:
    """Ten calls on 12 bytes in 6 s are 20 bytes per second; with a factor of 3/2, 30 on the bus."""
    seen = observe(facts={"collective_bytes": 12.0, "bus_factor": 1.5}, world_size=4)
    expected = {"algbw_bytes_per_s": 20.0, "busbw_bytes_per_s": 30.0}
    assert computed(bandwidth, seen) == pytest.approx(expected)


def test_only_collectives_have_bandwidths() -> None:
    """Bytes that a benchmark states itself are throughput and no bandwidth of a collective."""
    seen = observe(work=Work(bytes=3))
    assert computed(bandwidth, seen) == {}


def test_work_that_is_not_stated_has_no_rate() -> None:
    """A benchmark that states no amounts has no throughput and no TFLOP/s."""
    assert computed(throughput, observe()) | computed(tflops, observe()) == {}


def test_tflops_are_per_device() -> None:
    """The operations of all ranks are divided by their number."""
    seen = observe(work=Work(flops=240e12), world_size=2)
    assert computed(tflops, seen) == pytest.approx({"tflops": 200.0})


def test_mfu_is_the_share_of_the_dense_peak() -> None:
    """On an A100, whose dense peak for bf16 is 312 TFLOP/s, 156 are one half."""
    seen = observe(work=Work(flops=93.6e12))
    assert computed(mfu, seen) == pytest.approx({"mfu": 0.5})


@pytest.mark.parametrize(
    "change",
    [
        {"device_name": "NVIDIA A100-SXM4-40GB MIG 1g.5gb"},
        {"device_name": "a processor"},
        {"precision": "fp8"},
        {"work": Work(samples=1)},
        {"work": Work(flops=0.0)},
    ],
)
def test_without_a_peak_or_operations_there_is_no_mfu(change: dict[str, object]) -> None:
    """An unknown device, a type it lacks, or nothing counted gives no MFU."""
    assert computed(mfu, observe(**{"work": Work(flops=1e12), **change})) == {}
