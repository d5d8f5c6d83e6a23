from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.measure.metrics.ranks import AlgorithmBandwidth, BusBandwidth
from gpubench_plugin.measure.metrics.throughput import Mfu, Tflops, Throughput
from gpubench_plugin.records import Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.measure.metrics import MetricSource
    from gpubench_plugin.records import Observation, Samples


def computed(source: type[MetricSource], seen: Observation) -> dict[str, float]:
    return {metric.name: metric.value for metric in source().compute(seen)}


def test_throughput_is_total_work_over_total_time(observe: Callable[..., Observation]) -> None:
    """Ten calls of 12 samples in blocks of 1.6 and 4.4 s are 20 samples per second."""
    seen = observe(work=Work(samples=12, tokens=6, bytes=3))
    assert computed(Throughput, seen) == pytest.approx(
        {"samples_per_s": 20.0, "tokens_per_s": 10.0, "bytes_per_s": 5.0}
    )


def test_a_stall_lowers_the_throughput(
    observe: Callable[..., Observation], sampled: Callable[..., Samples]
) -> None:
    """One slow call in five takes 3 samples per second to 1, though the median stays 1 s."""
    stalling = sampled(durations_s=(1.0, 1.0, 1.0, 1.0, 11.0), block_s=(15.0,), block_calls=(5,))
    seen = observe(samples=stalling, work=Work(samples=3))
    assert computed(Throughput, seen) == {"samples_per_s": 1.0}


def test_bandwidths_are_of_one_message_whatever_the_number_of_ranks(
    observe: Callable[..., Observation],
) -> None:
    """Ten calls on 12 bytes in 6 s are 20 bytes per second; with a factor of 3/2, 30 on the bus."""
    seen = observe(facts={"collective_bytes": 12.0, "bus_factor": 1.5}, world_size=4)
    assert computed(AlgorithmBandwidth, seen) == pytest.approx({"algbw_bytes_per_s": 20.0})
    assert computed(BusBandwidth, seen) == pytest.approx({"busbw_bytes_per_s": 30.0})


def test_only_collectives_have_bandwidths(observe: Callable[..., Observation]) -> None:
    """Bytes that a benchmark states itself are throughput and no bandwidth of a collective."""
    seen = observe(work=Work(bytes=3))
    assert computed(AlgorithmBandwidth, seen) | computed(BusBandwidth, seen) == {}


def test_work_that_is_not_stated_has_no_rate(observe: Callable[..., Observation]) -> None:
    """A benchmark that states no amounts has no throughput and no TFLOP/s."""
    assert computed(Throughput, observe()) | computed(Tflops, observe()) == {}


def test_tflops_are_per_device(observe: Callable[..., Observation]) -> None:
    """The operations of all ranks are divided by their number."""
    seen = observe(work=Work(flops=240e12), world_size=2)
    assert computed(Tflops, seen) == pytest.approx({"tflops": 200.0})


def test_mfu_is_the_share_of_the_dense_peak(observe: Callable[..., Observation]) -> None:
    """On an A100, whose dense peak for bf16 is 312 TFLOP/s, 156 are one half."""
    seen = observe(work=Work(flops=93.6e12))
    assert computed(Mfu, seen) == pytest.approx({"mfu": 0.5})


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
def test_without_a_peak_or_operations_there_is_no_mfu(
    observe: Callable[..., Observation], change: dict[str, object]
) -> None:
    """An unknown device, a type it lacks, or nothing counted gives no MFU."""
    assert computed(Mfu, observe(**{"work": Work(flops=1e12), **change})) == {}
