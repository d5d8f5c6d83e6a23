"""The clocks of CUDA against a bare loop on a GPU; skipped where there is none."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest
import torch

from gpubench_plugin.config import MeasureSection
from gpubench_plugin.distributed import RankAgreement
from gpubench_plugin.measure import measure
from gpubench_plugin.measure.clocks import TorchCuda, clock_for
from gpubench_plugin.measure.clocks.spin import Spin
from gpubench_plugin.measure.probes import PeakMemory

if TYPE_CHECKING:
    from gpubench_plugin.measure.clocks import Step
    from gpubench_plugin.records import Samples

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
DEVICE = torch.device("cuda", 0)


def measured(step: Step, **keys: Any) -> Samples:
    section = MeasureSection(**keys)
    timing = section.timing_on(DEVICE.type, mark="step")
    clock = clock_for(DEVICE, timing=timing, cache=section.cache)
    clock.prepare()
    return measure(step, clock=clock, section=section, agreement=RankAgreement())


def bare_loop_s(step: Step, calls: int) -> float:
    """Seconds of a call between two events around many, after as many that are not timed."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(calls):
        step()
    start.record()
    for _ in range(calls):
        step()
    end.record()
    torch.cuda.synchronize(DEVICE)
    return start.elapsed_time(end) * 1e-3 / calls


def product(size: int) -> Step:
    """A product of square matrices in bf16."""
    matrix = torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16)
    out = torch.empty_like(matrix)
    return lambda: torch.mm(matrix, matrix, out=out)


def in_place(elements: int) -> Step:
    """A kernel that negates numbers."""
    return torch.randn(elements, device=DEVICE).neg_


def many_kernels() -> Step:
    """A step of 300 short kernels: the host launches more slowly than the device works."""
    values = torch.randn(1, device=DEVICE)

    def step() -> None:
        for _ in range(300):
            values.neg_()

    return step


def host_first() -> Step:
    """A step whose host is busy before it launches, and whose device takes about as long."""
    multiply = product(8192)
    own_s = bare_loop_s(multiply, 20)

    def step() -> None:
        until = time.perf_counter() + 0.9 * own_s
        while time.perf_counter() < until:
            pass
        multiply()

    return step


STEPS = {
    "product of 8192": (lambda: product(8192), 100),
    "product of 2048": (lambda: product(2048), 2000),
    "negation of 64 MiB": (lambda: in_place(1 << 24), 2000),
    "negation of 4 MiB": (lambda: in_place(1 << 20), 5000),
    "many kernels": (many_kernels, 200),
    "host first": (host_first, 100),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_takes_what_it_takes_in_a_bare_loop(name: str) -> None:
    """Throughput is that of a loop without the plugin: the better of three, 2 % for the clocks."""
    build, calls = STEPS[name]
    step = build()
    errors = []
    for _ in range(3):
        samples = measured(step)
        errors.append(sum(samples.block_s) / samples.calls / bare_loop_s(step, calls) - 1)
    assert min(map(abs, errors)) <= 0.02, errors
    assert "elsewhere" not in samples.flags


def test_launch_bound_steps_are_told_from_busy_hosts() -> None:
    """Many short kernels are launch-bound; a product, a host without kernels and a wait are not."""
    values = torch.randn(1 << 24, device=DEVICE)
    flagged = {
        name: "launch_bound" in measured(step).flags
        for name, step in {
            "kernels": many_kernels(),
            "product": product(8192),
            "host": lambda: time.sleep(0.005),
            "item": lambda: values.sum().item(),
            "copy": values.cpu,
        }.items()
    }
    assert flagged == {
        "kernels": True,
        "product": False,
        "host": False,
        "item": False,
        "copy": False,
    }


@pytest.mark.parametrize("timing", ["step", "kernel"])
def test_work_on_another_stream_is_in_the_time(timing: str) -> None:
    """A long product on a side stream is flagged, and takes what it takes on the current one."""
    multiply, side = product(8192), torch.cuda.Stream(DEVICE)

    def elsewhere() -> None:
        side.wait_stream(torch.cuda.current_stream(DEVICE))
        with torch.cuda.stream(side):
            multiply()

    samples = measured(elsewhere, timing=timing)
    assert "elsewhere" in samples.flags
    assert median(samples.durations_s) == pytest.approx(bare_loop_s(multiply, 100), rel=0.05)


def test_awaited_work_on_another_stream_is_not_flagged() -> None:
    """A step that waits for its side stream has all of its time between its events."""
    multiply, side = product(4096), torch.cuda.Stream(DEVICE)

    def joined() -> None:
        current = torch.cuda.current_stream(DEVICE)
        side.wait_stream(current)
        with torch.cuda.stream(side):
            multiply()
        current.wait_stream(side)

    assert "elsewhere" not in measured(joined).flags


def test_what_overwrites_the_cache_is_not_in_the_peak() -> None:
    """Cold and hot, a step has the same peak memory."""
    values = torch.randn(1 << 20, device=DEVICE)
    peaks = []
    section = MeasureSection()
    for cache in ("hot", "cold"):
        clock = clock_for(DEVICE, timing="kernel", cache=cache)
        with PeakMemory(DEVICE, clock.prepare()) as memory:
            measure(values.neg_, clock=clock, section=section, agreement=RankAgreement())
        peaks.append(memory.peak_bytes)
        del clock
    assert peaks[0] == pytest.approx(peaks[1], abs=4096)


def test_a_spin_lasts_as_long_as_asked_for_on_a_busy_device() -> None:
    """Measured again after the clocks have risen, it is right within a tenth."""
    device = TorchCuda(DEVICE)
    spin = Spin(device)
    spin(1e-3)
    bare_loop_s(product(8192), 100)
    spin.recalibrate()
    spin(0.0)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    spin(0.01)
    end.record()
    torch.cuda.synchronize(DEVICE)
    assert start.elapsed_time(end) == pytest.approx(10.0, rel=0.1)
