"""Benchmarks with fixed bounds: the clocks of CUDA beside loops by hand and Triton's do_bench."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Literal

import pytest
import torch

from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.measure.clocks.base import Task
from gpubench_plugin.measure.clocks.cuda_device import TorchCuda
from gpubench_plugin.measure.clocks.cuda_kernel import CudaKernelClock
from gpubench_plugin.measure.clocks.cuda_step import CudaStepClock
from gpubench_plugin.measure.loop import Variant, measure
from gpubench_plugin.ranks.agreement import RankAgreement

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.core.records import Samples
    from gpubench_plugin.measure.clocks.base import Clock, Step

FROM_LOOP = {"from_bare_loop": "<=0.005"}
FROM_DO_BENCH = {"from_do_bench": "<=0.02"}  # which times each call by itself
# An H200 reads 4.8 TB/s from memory, and about twice that from its L2 cache.
COLD_OVER_HOT = {"cold_over_hot": ">=1.3"}

# Of clock and loop alternately, so that a clock that falls does not count for one of them.
PASSES = 5
L2_BYTES = 40 * 2**20


@dataclass(frozen=True, kw_only=True)
class Load:
    """A step, the calls of the loop that it is compared with, and whether it is launch-bound."""

    build: Callable[[torch.device], Step]
    calls: int
    launch_bound: bool = False


def product(device: torch.device, size: int) -> Step:
    """In fp32 and of zeros: in bf16 a GPU comes to its power limit, where its clock changes."""
    matrix = torch.zeros(size, size, device=device)
    return partial(torch.mm, matrix, matrix, out=torch.empty_like(matrix))


def softmax(device: torch.device) -> Step:
    rows = torch.randn(4096, 8192, device=device)
    return lambda: torch.softmax(rows, -1)


def convolution(device: torch.device) -> Step:
    own = {"device": device, "dtype": torch.bfloat16}
    module = torch.nn.Conv2d(64, 64, 3, padding=1, **own).to(memory_format=torch.channels_last)
    image = torch.zeros(256, 64, 56, 56, **own).to(memory_format=torch.channels_last)

    @torch.inference_mode()
    def forward() -> torch.Tensor:
        return module(image)

    return forward


def negation(device: torch.device, elements: int) -> Step:
    return torch.randn(elements, device=device).neg_


def paced(device: torch.device, kernels: int, seconds: float) -> Step:
    """Launches at equal distances: in a virtual machine the host's own vary by a third."""
    values = torch.randn(1 << 20, device=device)

    def step() -> None:
        start = time.perf_counter()
        for number in range(1, kernels + 1):
            while time.perf_counter() < start + seconds * number / kernels:
                pass
            values.neg_()

    return step


LOADS = {
    "product-4096": Load(build=partial(product, size=4096), calls=100),
    "product-1024": Load(build=partial(product, size=1024), calls=2000),
    "softmax": Load(build=softmax, calls=2000),
    "convolution": Load(build=convolution, calls=500),
    # An fp32 vector's negation takes some so many µs at 3 to 5 TB/s; calculated.
    "20-us": Load(build=partial(negation, elements=1 << 23), calls=10_000),
    "50-us": Load(build=partial(negation, elements=1 << 24), calls=4000),
    "200-us": Load(build=partial(negation, elements=1 << 26), calls=1000),
    "1000-us": Load(build=partial(negation, elements=1 << 28), calls=200),
    "300-kernels": Load(
        build=partial(paced, kernels=300, seconds=0.003), calls=200, launch_bound=True
    ),
    "busy-host": Load(build=partial(paced, kernels=1, seconds=0.012), calls=50),
}


def measured(step: Step, clock: Clock) -> Samples:
    """Measure with the default section, but a short warm-up: the device is warm."""
    clock.prepare()
    section = MeasureSection(warmup_s=0.1, warmup_max_s=1.0, min_time_s=0.2, max_time_s=0.5)
    return measure(
        [Variant(task=Task(step=step), clock=clock)], section=section, agreement=RankAgreement()
    )[0]


def bare_loop_s(device: TorchCuda, step: Step, calls: int) -> float:
    """Seconds of a call between two events around many, after some that are not timed."""
    start, end = device.event(), device.event()
    for _ in range(max(1, calls // 5)):
        step()
    start.record()
    for _ in range(calls):
        step()
    end.record()
    device.synchronize()
    return start.elapsed_time(end) * 1e-3 / calls


def from_bare_loop(
    device: TorchCuda, step: Step, calls: int, now: Callable[[], int] = time.perf_counter_ns
) -> float:
    """Share by which the step clock differs from a bare loop."""

    def ratio() -> float:
        samples = measured(step, CudaStepClock(device, now))
        return sum(samples.block_s) / samples.calls / bare_loop_s(device, step, calls)

    return abs(median(ratio() for _ in range(PASSES)) - 1)


def kernel_s(
    device: TorchCuda,
    step: Step,
    cache: Literal["hot", "cold"],
    now: Callable[[], int] = time.perf_counter_ns,
) -> float:
    """Seconds of a kernel by the kernel clock."""
    return median(measured(step, CudaKernelClock(device, cache=cache, now=now)).durations_s)


@pytest.mark.gpubench(limits=FROM_LOOP)
@pytest.mark.parametrize("load", LOADS)
def test_step(gpubench, torch_device, load):
    """A step takes what it takes in a bare loop; ``launch_bound`` is raised where it should be."""
    step = LOADS[load].build(torch_device)
    error = from_bare_loop(TorchCuda(torch_device), step, LOADS[load].calls)
    gpubench.record("from_bare_loop", error, unit="fraction", better="lower")
    flags = gpubench(step).flags
    assert ("launch_bound" in flags) is LOADS[load].launch_bound


@pytest.mark.gpubench
def test_step_that_waits(gpubench, torch_device):
    """A step in which the host waits is not launch-bound."""
    values = torch.randn(1 << 26, device=torch_device)
    flags = gpubench(lambda: values.sum().item()).flags
    assert "launch_bound" not in flags


@pytest.mark.gpubench(timing="kernel", limits=FROM_DO_BENCH)
@pytest.mark.gpubench_set("measure.cache=cold")
@pytest.mark.parametrize("load", ["product-4096", "200-us"])
def test_kernel(gpubench, torch_device, load):
    """A kernel, long beside the resolution of events, takes what ``do_bench`` says."""
    testing = pytest.importorskip("triton.testing", reason="needs Triton")
    step = LOADS[load].build(torch_device)
    own_s = kernel_s(TorchCuda(torch_device), step, "cold")
    do_bench_s = testing.do_bench(step, warmup=50, rep=300, return_mode="median") * 1e-3
    gpubench.record("from_do_bench", abs(own_s / do_bench_s - 1), unit="fraction", better="lower")
    gpubench(step)


@pytest.mark.gpubench(timing="kernel", limits=COLD_OVER_HOT)
def test_cache(gpubench, torch_device):
    """A kernel whose 16 MiB fit into the L2 cache takes longer without it."""
    if torch.cuda.get_device_properties(torch_device).L2_cache_size < L2_BYTES:
        pytest.skip("the L2 cache is too small")
    step, device = negation(torch_device, 1 << 22), TorchCuda(torch_device)
    ratio = kernel_s(device, step, "cold") / kernel_s(device, step, "hot")
    gpubench.record("cold_over_hot", ratio, better="higher")
    gpubench(step)
