"""Single operations, their clocks and traces on a GPU; skipped where there is none."""

from __future__ import annotations

import json
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest
import torch

from gpubench_plugin.config.sections import MeasureSection, ProfilingSection
from gpubench_plugin.measure.clocks.select import clock_for
from gpubench_plugin.measure.loop import measure
from gpubench_plugin.measure.probes.profiler import profile
from gpubench_plugin.ranks.process_group import RankAgreement
from tests.support.gpu_selections import COLD_START, FULL_CONVOLUTIONS, KERNELS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_kernels_have_their_clock(tmp_path: Path) -> None:
    """Each is timed without its launches, with the cache that its case names."""
    benchmarks = KERNELS.measured(tmp_path)
    assert {name: b["outcome"] for name, b in benchmarks.items()} == dict.fromkeys(
        KERNELS.names, "measured"
    )
    assert {name: b["timer"] for name, b in benchmarks.items()} == {
        name: f"cuda_kernel_{'cold' if 'cold' in name else 'hot'}" for name in KERNELS.names
    }
    assert [name for name, b in benchmarks.items() if "launch_bound" in b["flags"]] == []


def test_overwritten_cache_costs_time() -> None:
    """A sum of 16 MiB, which fit into the L2 cache, takes at least 1.3 times as long without it."""
    device = torch.device("cuda:0")
    if torch.cuda.get_device_properties(device).L2_cache_size < 40 * 2**20:
        pytest.skip("the L2 cache is too small")
    values = torch.randn(1 << 22, device=device)
    section, times = MeasureSection(), {}
    for cache in ("hot", "cold"):
        clock = clock_for(device, timing="kernel", cache=cache)
        samples = measure(
            lambda: values.add_(1.0), clock=clock, section=section, agreement=RankAgreement()
        )
        times[cache] = median(samples.durations_s)
    assert times["cold"] >= 1.3 * times["hot"]


def test_convolutions_of_preset_full_are_accurate(tmp_path: Path) -> None:
    """Whatever algorithms cuDNN takes, none has an error beyond the tolerance of fp32."""
    benchmarks = FULL_CONVOLUTIONS.measured(tmp_path)
    assert {name: b["outcome"] for name, b in benchmarks.items()} == dict.fromkeys(
        FULL_CONVOLUTIONS.names, "measured"
    )


def test_cold_start_runs_no_process_for_the_clock(tmp_path: Path) -> None:
    """After the first one only the timed ones run."""
    (benchmark,) = COLD_START.measured(tmp_path).values()
    assert benchmark["outcome"] == "measured"
    assert benchmark["metrics"].get("warmup_iterations", {"value": 0})["value"] == 0


def test_trace_holds_the_kernels_of_every_step(tmp_path: Path) -> None:
    """As many as there are products, and none of the step in which tracing starts."""
    device = torch.device("cuda:0")
    matrix = torch.randn(1024, 1024, device=device)
    path = tmp_path / "trace.json"
    profile(lambda: matrix @ matrix, section=ProfilingSection(steps=3), device=device, path=path)
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    products = [event for event in events if event["name"] == "aten::mm"]
    assert len(products) == 3
    assert len(kernels) >= 3
    assert len(kernels) % 3 == 0
