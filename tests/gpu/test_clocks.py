"""The clocks of CUDA on a GPU: what they time, what they leave out, and how far off they are."""

from __future__ import annotations

import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Literal

import pytest
import torch

from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.measure.clocks.base import Task
from gpubench_plugin.measure.clocks.cuda_device import TorchCuda
from gpubench_plugin.measure.clocks.step_cost import Spin
from gpubench_plugin.measure.loop import Variant, clock_for, measure
from gpubench_plugin.measure.probes.memory import PeakMemory
from gpubench_plugin.ranks.agreement import RankAgreement
from tests.gpu.bench_clocks import bare_loop_s, negation, product
from tests.support.gpu_selections import CLOCKS

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.core.records import Samples
    from gpubench_plugin.measure.clocks.base import Step

pytestmark = pytest.mark.gpu_clocks
DEVICE = torch.device("cuda", 0)
Timing = Literal["step", "kernel"]


def measured(step: Step, timing: Timing = "step", cache: Literal["hot", "cold"] = "hot") -> Samples:
    clock = clock_for(DEVICE, timing=timing, cache=cache)
    clock.prepare()
    return measure(
        [Variant(task=Task(step=step), clock=clock)],
        section=MeasureSection(),
        agreement=RankAgreement(),
    )[0]


def test_clocks_keep_to_their_bounds() -> None:
    """Steps beside bare loops, kernels beside ``do_bench``, cold caches beside hot ones."""
    outcomes = CLOCKS.measured().outcomes
    assert {name for name, outcome in outcomes.items() if outcome != "measured"} <= {
        name for name in CLOCKS.names if name.startswith(("test_kernel", "test_cache"))
    }


def spin_s(device: TorchCuda, seconds: float, before: Callable[[], object] | None = None) -> float:
    """What a spin of so many seconds takes, at once or after something else."""
    spin = Spin(device)
    spin(1e-3)
    device.synchronize()
    if before is not None:
        before()
        device.synchronize()
        spin.recalibrate()
    spin(1e-3)  # measures the rate, which the device's clock may have changed
    device.synchronize()
    start, end = device.event(), device.event()
    start.record()
    spin(seconds)
    end.record()
    device.synchronize()
    return start.elapsed_time(end) * 1e-3


def burn() -> None:
    matrix = torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16)
    for _ in range(500):
        torch.mm(matrix, matrix)


@pytest.mark.parametrize(
    "before", [None, partial(time.sleep, 0.5), burn], ids=["at-once", "after-rest", "after-work"]
)
def test_a_spin_lasts_as_long_as_it_should(before: Callable[[], object] | None) -> None:
    """Within a tenth, whatever the clock of the GPU was before."""
    assert spin_s(TorchCuda(DEVICE), 0.01, before) == pytest.approx(0.01, rel=0.1)


@pytest.mark.parametrize("timing", ["step", "kernel"])
def test_work_on_another_stream_is_in_the_time(timing: Timing) -> None:
    """A long product on a side stream is flagged, and takes what it takes on the current one."""
    multiply, side = product(DEVICE, 4096), torch.cuda.Stream(DEVICE)

    def elsewhere() -> None:
        side.wait_stream(torch.cuda.current_stream(DEVICE))
        with torch.cuda.stream(side):
            multiply()

    samples = measured(elsewhere, timing)
    assert "elsewhere" in samples.flags
    assert "elsewhere" not in measured(multiply, timing).flags
    expected_s = bare_loop_s(TorchCuda(DEVICE), multiply, 100)
    assert median(samples.durations_s) == pytest.approx(expected_s, rel=0.05)


def test_awaited_work_on_another_stream_is_not_flagged() -> None:
    """A step that waits for its side stream has all of its time between its events."""
    multiply, side = product(DEVICE, 4096), torch.cuda.Stream(DEVICE)

    def joined() -> None:
        current = torch.cuda.current_stream(DEVICE)
        side.wait_stream(current)
        with torch.cuda.stream(side):
            multiply()
        current.wait_stream(side)

    assert "elsewhere" not in measured(joined).flags


@pytest.mark.parametrize("cache", ["hot", "cold"])
def test_kernels_are_timed_without_launch_latency(cache: Literal["hot", "cold"]) -> None:
    """A small kernel is timed by device events; no launch-bound flag is raised."""
    samples = measured(negation(DEVICE, 1 << 22), "kernel", cache)
    assert "launch_bound" not in samples.flags
    assert min(samples.durations_s) > 0


def test_what_overwrites_the_cache_is_not_in_the_peak() -> None:
    """Cold and hot, a step has the same peak memory."""
    step = negation(DEVICE, 1 << 20)
    peaks = []
    section = MeasureSection()
    for cache in ("hot", "cold"):
        clock = clock_for(DEVICE, timing="kernel", cache=cache)
        with PeakMemory(DEVICE, clock.prepare()) as memory:
            measure(
                [Variant(task=Task(step=step), clock=clock)],
                section=section,
                agreement=RankAgreement(),
            )[0]
        peaks.append(memory.facts["peak_memory_bytes"])
        del clock
    assert peaks[0] == pytest.approx(peaks[1], abs=4096)
