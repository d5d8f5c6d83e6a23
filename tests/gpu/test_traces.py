"""Traces of the profiler and snapshots of the allocator on a GPU."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch

from gpubench_plugin.config.sections import ProfilingSection
from gpubench_plugin.measure.probes.profiler import profile

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

pytestmark = pytest.mark.gpu_clocks
DEVICE = torch.device("cuda", 0)


def test_trace_holds_the_kernels_of_every_step(tmp_path: Path) -> None:
    """As many as there are products, and none of the step in which tracing starts."""
    matrix = torch.randn(1024, 1024, device=DEVICE)
    path = tmp_path / "trace.json"
    profile(lambda: matrix @ matrix, section=ProfilingSection(steps=3), device=DEVICE, path=path)
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    products = [event for event in events if event["name"] == "aten::mm"]
    assert len(products) == 3
    assert len(kernels) >= 3
    assert len(kernels) % 3 == 0


def peak_bytes(entries: Iterable[dict[str, Any]]) -> int:
    """The largest sum of what is allocated in the allocator's history."""
    held = highest = 0
    for entry in entries:
        if entry["action"] == "alloc":
            held += entry["size"]
        elif entry["action"] == "free_completed":
            held -= entry["size"]
        highest = max(highest, held)
    return highest


def test_peak_of_a_memory_snapshot_is_that_of_torch() -> None:
    """Within a hundredth, of a training step."""
    layers = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024, device=DEVICE) for _ in range(8)))
    batch = torch.randn(4096, 1024, device=DEVICE)
    layers(batch).sum().backward()  # libraries allocate their workspace
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    torch.cuda.memory._record_memory_history()
    try:
        layers(batch).sum().backward()
        torch.cuda.synchronize()
        snapshot = torch.cuda.memory._snapshot()
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    entries = [entry for trace in snapshot["device_traces"] for entry in trace]
    added = torch.cuda.max_memory_allocated() - before
    assert added > 0
    assert peak_bytes(entries) == pytest.approx(added, rel=0.01)
