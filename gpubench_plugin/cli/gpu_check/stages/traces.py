"""A trace of a benchmark, and a snapshot of the memory that a step allocates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.environment import json_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from gpubench_plugin.cli.gpu_check.stage import StageRun

_SUITE: Final = "benchmarks/training/test_resnet.py"
_CASE: Final = "resnet18_train and channels_last and not compiled and not accumulated"
_KERNELS: Final = 100
"""A ResNet-18 of 20 convolutions has more in forward, backward and optimizer of one step."""
_PEAK_LIMIT: Final = 1.0


def traces(run: StageRun) -> None:
    """Check the trace of ``--profile``, and a snapshot of torch's allocator."""
    run.file_of_suite(_SUITE)
    session = run.pytest(
        "profile",
        *(_SUITE, "-k", _CASE, "--preset=tiny", "--precision=amp", "--profile"),
        *("--gpubench-set=measure.profile=quick",),
        cwd=run.repository,
    )
    run.check("exit code", session.code, "equal", 0)
    check_trace(run, session.traces)
    check_snapshot(run, *snapshot_of_step())


def check_trace(run: StageRun, files: Iterable[Path]) -> None:
    """Kernels with a duration in the trace among `files`."""
    events = events_of(files)
    kernels = [event for event in events if event.get("cat") == "kernel"]
    timed = [event for event in kernels if event.get("dur", 0) > 0]
    run.check("kernels in the trace", len(kernels), "at_least", _KERNELS)
    run.check("kernels without a duration", len(kernels) - len(timed), "equal", 0)


def events_of(files: Iterable[Path]) -> list[dict[str, Any]]:
    """Events of all traces among `files`."""
    documents = [json_files.load(file) for file in files]
    return [e for d in documents if isinstance(d, dict) for e in d.get("traceEvents", ())]


def check_snapshot(run: StageRun, entries: Iterable[dict[str, Any]], peak_bytes: float) -> None:
    """The largest sum of what is allocated in the `entries` is the peak that torch tells."""
    held = highest = 0.0
    allocations = 0
    for entry in entries:
        if entry["action"] == "alloc":
            held += entry["size"]
            allocations += 1
        elif entry["action"] == "free_completed":
            held -= entry["size"]
        highest = max(highest, held)
    run.check("allocations in the snapshot", allocations, "at_least", 1)
    error = abs(highest / peak_bytes - 1) * 100 if peak_bytes else None
    run.check("peak of the snapshot from that of torch", error, "at_most", _PEAK_LIMIT, "%")


def snapshot_of_step() -> tuple[list[dict[str, Any]], float]:
    """The allocator's history of one training step, and the peak that it adds."""
    import torch

    device = torch.device("cuda", 0)
    layers: Callable[..., Any] = torch.nn.Sequential(
        *(torch.nn.Linear(1024, 1024, device=device) for _ in range(8))
    )
    batch = torch.randn(4096, 1024, device=device)
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
    return entries, float(torch.cuda.max_memory_allocated() - before)
