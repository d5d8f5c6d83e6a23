"""The clocks of CUDA against a bare loop on a GPU; skipped where there is none."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

import pytest
import torch

from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.measure.clocks.select import clock_for
from gpubench_plugin.measure.loop import measure
from gpubench_plugin.measure.probes.memory import PeakMemory
from gpubench_plugin.ranks.process_group import RankAgreement

if TYPE_CHECKING:
    from gpubench_plugin.core.records import Samples
    from gpubench_plugin.measure.clocks.base import Step

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
