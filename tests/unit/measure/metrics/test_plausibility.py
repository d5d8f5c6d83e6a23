from __future__ import annotations

from dataclasses import replace

import pytest

from gpubench_plugin.core.errors import MeasurementError
from gpubench_plugin.core.records import Metric, Work
from gpubench_plugin.measure.metrics._all import check_values, compute_all
from tests.support.messages import mentions
from tests.support.observations import observe, sampled

NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("durations_s", "said"),
    [
        *[((0.1, time_s, 0.1), f"lasted {time_s} s") for time_s in (0.0, -1e-9, NAN, INFINITE)],
        ((), "nothing was timed"),
    ],
)
def test_a_time_that_cannot_be_is_refused(durations_s: tuple[float, ...], said: str) -> None:
    """As one that is zero, negative or not finite, or none at all."""
    with pytest.raises(MeasurementError, match=said):
        compute_all(observe(samples=sampled(durations_s=durations_s)))


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (Metric(name="loss_last", value=NAN, unit="1"), "loss_last is nan"),
        (Metric(name="x_s", value=INFINITE, unit="s"), "x_s is inf"),
        (Metric(name="rate", value=0.0, unit="samples/s"), "rate is 0.0 samples/s: the work"),
    ],
)
def test_a_metric_that_cannot_be_is_refused(metric: Metric, message: str) -> None:
    """A value that is not finite and a rate of nothing are named with their unit."""
    with pytest.raises(MeasurementError) as caught:
        check_values({metric.name: metric}, observe())
    assert str(caught.value).startswith(message)


def test_more_than_the_peak_is_refused() -> None:
    """The message has the rate, the peak, its source and what may be wrong."""
    seen = observe(work=Work(flops=284.544e12))
    with pytest.raises(MeasurementError) as caught:
        check_values({"mfu": Metric(name="mfu", value=1.52, unit="fraction")}, seen)
    said = ("474.2 TFLOP/s", "A100-SXM4-80GB, 312.0 TFLOP/s (dense bf16 peak, https://www.nv")
    assert mentions(caught.value, *said)


@pytest.mark.parametrize("value", [0.999, 1.0])
def test_the_peak_itself_passes(value: float) -> None:
    """Up to the peak a measurement can be true."""
    check_values({"mfu": Metric(name="mfu", value=value, unit="fraction")}, observe())


@pytest.mark.parametrize(
    ("device", "work", "said"),
    [
        ("cpu", Work(flops=1e15), "exceeds the maximum of a CPU, 40.00 TFLOP/s (2 proc"),
        ("cpu", Work(bytes=1e13), "exceeds the maximum of a CPU, 4.000 TB/s (2 proc"),
        ("cuda", Work(flops=1.6e15), "80GB, 2.496 PFLOP/s (8 times the highest dense peak, http"),
        ("cuda", Work(bytes=1.3e12), "80GB, 2.039 TB/s (https://www.nvidia.com"),
    ],
)
def test_amounts_above_what_a_device_can_do_are_refused(device: str, work: Work, said: str) -> None:
    """Of ten calls in six seconds, whatever the precision."""
    name = "a CPU" if device == "cpu" else "NVIDIA A100-SXM4-80GB"
    seen = observe(device=device, device_name=name, precision="", work=work)
    with pytest.raises(MeasurementError) as caught:
        check_values({}, replace(seen, facts={"processors": 2.0}))
    assert said in str(caught.value)


def test_what_a_cache_can_hold_may_be_faster_than_memory() -> None:
    """Up to what the fastest caches do."""
    quick = sampled(durations_s=(1e-6,), block_s=(1e-6,), block_calls=(1,))
    check_values({}, observe(samples=quick, work=Work(bytes=8e6)))
    with pytest.raises(MeasurementError, match=r"maximum of NVIDIA A100-SXM4-80GB, 32\.62 TB/s"):
        check_values({}, observe(samples=quick, work=Work(bytes=8e7)))


@pytest.mark.parametrize(
    ("possible", "rate", "device", "said"),
    [
        (5e11, 7e11, "NVIDIA A100-SXM4-80GB", r"between devices .* exceeds .*, 600\.0 GB/s \("),
        (7e11, 2e13, "a new one", r"between devices .* exceeds .*, 18\.00 TB/s"),
    ],
)
def test_a_link_moves_no_more_than_it_can(
    possible: float, rate: float, device: str, said: str
) -> None:
    """The bus bandwidth of a collective, in both directions of the fastest link there is."""
    seen = observe(work=Work(), device_name=device)
    metric = Metric(name="busbw_bytes_per_s", value=possible, unit="bytes/s")
    check_values({metric.name: metric}, seen)
    with pytest.raises(MeasurementError, match=said):
        check_values({metric.name: replace(metric, value=rate)}, seen)


@pytest.mark.parametrize(
    ("device_name", "tops"),
    [
        ("NVIDIA A100-SXM4-80GB", 624),  # int8
        ("NVIDIA A100-SXM4-80GB", 2496),  # int4 with 2:4 sparsity
        ("Tesla T4", 130),  # int8
        ("NVIDIA B200", 18000),  # fp4 with 2:4 sparsity
    ],
)
def test_operations_on_narrow_types_and_on_sparse_matrices_pass(
    device_name: str, tops: float
) -> None:
    """What a datasheet states for a type that has no MFU here can be true."""
    seen = observe(device_name=device_name, precision="", work=Work(flops=tops * 1e12 * 0.6))
    check_values({}, seen)


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (Work(flops=1e15), r"25000000 PFLOP/s .* RTX 4090, 400\.0 PFLOP/s \(8 times"),
        (Work(bytes=1e12), r"25000 PB/s .* RTX 4090, 80\.00 TB/s \(ten times the highest"),
    ],
)
def test_a_device_that_nobody_knows_does_not_do_everything(work: Work, message: str) -> None:
    """The ceilings leave room above the fastest device of the table."""
    quick = sampled(durations_s=(4e-8,), block_s=(4e-8,), block_calls=(1,))
    unknown = observe(device_name="NVIDIA GeForce RTX 4090", precision="", work=work)
    check_values({}, replace(unknown, work=Work(flops=6e16, bytes=4e13)))
    with pytest.raises(MeasurementError, match=message):
        check_values({}, replace(unknown, samples=quick))


def test_a_cpu_whose_processors_nobody_counted_has_no_ceiling() -> None:
    """There is nothing to multiply."""
    check_values({}, observe(device="cpu", device_name="a CPU", work=Work(flops=1e30)))
