"""The clocks of CUDA against loops written by hand, and the flags that they raise."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Literal

import torch

from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.core.quality_flags import ELSEWHERE, LAUNCH_BOUND
from gpubench_plugin.measure.clocks.cuda_device import TorchCuda
from gpubench_plugin.measure.clocks.cuda_kernel import CudaKernelClock
from gpubench_plugin.measure.clocks.cuda_step import CudaStepClock
from gpubench_plugin.measure.clocks.spin import Spin
from gpubench_plugin.measure.loop import measure
from gpubench_plugin.ranks.process_group import RankAgreement

if TYPE_CHECKING:
    from gpubench_plugin.cli.gpu_check.stage import StageRun
    from gpubench_plugin.core.records import Samples
    from gpubench_plugin.measure.clocks.base import Step

_STEP_LIMIT: Final = 0.5
_KERNEL_LIMIT: Final = 2.0
"""Percent from the loop by hand, and from Triton's do_bench, which times each call by itself."""
_ELSEWHERE_LIMIT: Final = 5.0
"""Percent: work on another stream is timed from an idle device, with its launches."""
_COLD_RATIO: Final = 1.3
"""Memory over cache: an H200 reads 4.8 TB/s, and about twice that from its L2 cache."""
_SPIN_LIMIT: Final = 10.0
_PASSES: Final = 3
"""Of clock and loop alternately, so that a clock that falls does not count for one of them."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """A step with what is known of it: calls of a loop, and whether it is launch-bound.

    A load without calls is not compared with a loop: the host waits in it.
    """

    step: Step
    calls: int = 0
    launch_bound: bool = False


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The device with its loads, and the tools of others.

    `small` is a kernel whose data fit into the cache. `kernels` are long beside the resolution of
    events, half a microsecond; `do_bench_s` are the seconds of one in Triton's ``do_bench``, None
    without Triton. `elsewhere` does the work of `beside` on another stream. `burn` keeps the
    device busy, `idle` lets it rest.
    """

    device: TorchCuda
    loads: Mapping[str, Load]
    small: Step
    kernels: Mapping[str, Step]
    do_bench_s: Callable[[Step], float] | None
    beside: Step
    elsewhere: Step
    burn: Step
    idle: Callable[[float], None]
    now: Callable[[], int] = time.perf_counter_ns


def clocks(run: StageRun) -> None:
    """Check the clocks on the device."""
    with torch.cuda.device(0):
        examine(run, _on_device(torch.device("cuda", 0)))


def examine(run: StageRun, bench: Bench) -> None:
    """Check the clocks on any device."""
    _check_spin(run, bench)
    _check_steps(run, bench)
    _check_kernels(run, bench)
    _check_elsewhere(run, bench)


def _check_spin(run: StageRun, bench: Bench) -> None:
    """Seconds of a spin over those asked for: at once, after a rest, and after work."""
    spin = Spin(bench.device)
    spin(1e-3)
    for when, before in (
        ("at once", None),
        ("after 0.5 s of rest", lambda: bench.idle(0.5)),
        ("after work", bench.burn),
    ):
        bench.device.synchronize()
        if before is not None:
            before()
            bench.device.synchronize()
            spin.recalibrate()
        error = _spin_s(bench.device, spin, 0.01) / 0.01 - 1
        run.check(f"spin of 10 ms {when}", abs(error) * 100, "at_most", _SPIN_LIMIT, "%")


def _spin_s(device: TorchCuda, spin: Spin, seconds: float) -> float:
    spin(1e-3)  # measures the rate, which the device's clock may have changed
    device.synchronize()
    start, end = device.event(), device.event()
    start.record()
    spin(seconds)
    end.record()
    device.synchronize()
    return start.elapsed_time(end) * 1e-3


def _check_steps(run: StageRun, bench: Bench) -> None:
    for name, load in bench.loads.items():
        samples = _measured(bench, load.step)
        if load.calls:
            ratios = [
                _call_s(_measured(bench, load.step)) / bare_loop_s(bench.device, load)
                for _ in range(_PASSES)
            ]
            error = (median(ratios) - 1) * 100
            run.check(
                f"{name}: step clock from a bare loop", abs(error), "at_most", _STEP_LIMIT, "%"
            )
        raised = LAUNCH_BOUND in samples.flags
        run.check(f"{name}: launch_bound", raised, "equal", load.launch_bound)


def bare_loop_s(device: TorchCuda, load: Load) -> float:
    """Seconds of a call between two events around many, after some that are not timed."""
    start, end = device.event(), device.event()
    for _ in range(max(1, load.calls // 5)):
        load.step()
    start.record()
    for _ in range(load.calls):
        load.step()
    end.record()
    device.synchronize()
    return start.elapsed_time(end) * 1e-3 / load.calls


def _check_kernels(run: StageRun, bench: Bench) -> None:
    """Kernel clock: cold against do_bench, and against itself with a warm cache."""
    hot, cold = (
        median(_measured(bench, bench.small, timing="kernel", cache=cache).durations_s)
        for cache in ("hot", "cold")
    )
    run.fact(small_kernel_hot_s=hot, small_kernel_cold_s=cold)
    run.check("16 MiB: cold over hot", cold / hot, "at_least", _COLD_RATIO)
    if bench.do_bench_s is None:
        run.unproven("the kernel clock agrees with triton.testing.do_bench (no Triton here)")
        return
    for name, step in bench.kernels.items():
        own = _measured(bench, step, timing="kernel", cache="cold")
        error = median(own.durations_s) / bench.do_bench_s(step) - 1
        run.check(
            f"{name}: kernel clock from do_bench", abs(error) * 100, "at_most", _KERNEL_LIMIT, "%"
        )


def _check_elsewhere(run: StageRun, bench: Bench) -> None:
    expected_s = _call_s(_measured(bench, bench.beside))
    samples = _measured(bench, bench.elsewhere)
    run.check("other stream: elsewhere", ELSEWHERE in samples.flags, "equal", 1)
    run.check(
        "current stream: elsewhere", ELSEWHERE in _measured(bench, bench.beside).flags, "equal", 0
    )
    error = median(samples.durations_s) / expected_s - 1
    run.check("other stream: step clock", abs(error) * 100, "at_most", _ELSEWHERE_LIMIT, "%")


def _measured(
    bench: Bench,
    step: Step,
    *,
    timing: Literal["step", "kernel"] = "step",
    cache: Literal["hot", "cold"] = "hot",
) -> Samples:
    """Measure with the default section, but a short warm-up: the device is warm."""
    clock = (
        CudaStepClock(bench.device, bench.now)
        if timing == "step"
        else CudaKernelClock(bench.device, cache=cache, now=bench.now)
    )
    clock.prepare()
    section = MeasureSection(warmup_s=0.1, warmup_max_s=1.0, min_time_s=0.2, max_time_s=0.5)
    return measure(step, clock=clock, section=section, agreement=RankAgreement())


def _call_s(samples: Samples) -> float:
    """Seconds of a call in all blocks, as throughput has them."""
    return sum(samples.block_s) / samples.calls


def _on_device(device: torch.device) -> Bench:
    """The loads of the real device."""
    big = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
    small = torch.randn(2048, 2048, device=device, dtype=torch.bfloat16)
    small_out, big_out = torch.empty_like(small), torch.empty_like(big)
    image = torch.randn(256, 64, 56, 56, device=device, dtype=torch.bfloat16)
    image = image.to(memory_format=torch.channels_last)
    convolution = torch.nn.Conv2d(64, 64, 3, padding=1, device=device, dtype=torch.bfloat16)
    convolution.to(memory_format=torch.channels_last)  # type: ignore[call-overload] # a gap in its stub
    rows = torch.randn(4096, 8192, device=device)
    one = torch.randn(1, device=device)
    vectors = {us: torch.randn(elements, device=device) for us, elements in _ELEMENTS.items()}
    cached = torch.randn(1 << 22, device=device)
    side = torch.cuda.Stream(device)

    def multiply() -> Any:
        return torch.mm(big, big, out=big_out)

    def many_kernels() -> None:
        for _ in range(300):
            one.neg_()

    def on_side_stream() -> None:
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            multiply()

    def burn() -> None:
        for _ in range(500):
            multiply()

    def busy_host() -> None:
        end = time.perf_counter() + 0.012
        while time.perf_counter() < end:
            pass
        one.neg_()

    return Bench(
        device=TorchCuda(device),
        loads={
            "product of 8192": Load(step=multiply, calls=100),
            "product of 2048": Load(step=lambda: torch.mm(small, small, out=small_out), calls=2000),
            "softmax": Load(step=lambda: torch.softmax(rows, -1), calls=2000),
            "convolution": Load(step=_without_gradients(convolution, image), calls=500),
            **{
                f"kernel of some {us} µs": Load(step=vector.neg_, calls=round(2e5 / us))
                for us, vector in vectors.items()
            },
            "300 kernels": Load(step=many_kernels, calls=200, launch_bound=True),
            "host of 12 ms": Load(step=busy_host, calls=50),
            "item": Load(step=lambda: vectors[200].sum().item()),
        },
        small=cached.neg_,
        kernels={"product of 8192": multiply, "256 MiB": vectors[200].neg_},
        do_bench_s=_do_bench(),
        beside=multiply,
        elsewhere=on_side_stream,
        burn=burn,
        idle=time.sleep,
    )


_ELEMENTS: Final = {20: 1 << 23, 50: 1 << 24, 200: 1 << 26, 1000: 1 << 28}
"""Elements of an fp32 vector whose negation takes some so many µs at 3 to 5 TB/s; calculated."""


def _without_gradients(module: torch.nn.Module, batch: torch.Tensor) -> Step:
    def forward() -> Any:
        with torch.inference_mode():
            return module(batch)

    return forward


def _do_bench() -> Callable[[Step], float] | None:
    try:
        from triton.testing import do_bench
    except ImportError:
        return None
    return lambda step: do_bench(step, warmup=50, rep=300, return_mode="median") * 1e-3
