"""When a session starts CUDA: with the benchmark that needs it, in the process that runs it."""

from __future__ import annotations

import pytest

from tests.support.fake_gpus import FakeGpu, FakeNvml, install
from tests.support.projects import Project

BENCHMARK = """
def test_x(gpubench, torch_device):
    gpubench(lambda: None)
"""


@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_a_session_starts_cuda_in_the_benchmark(
    project: Project, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    """Collecting, resolving, recording and the header leave it; the device's fixture is first."""
    install(monkeypatch, FakeNvml(FakeGpu()))
    project.write("test_it.py", BENCHMARK)
    run = project.run(f"--device={device}", "--full-trace")
    (benchmark,) = run.summary["benchmarks"]
    assert (benchmark["outcome"], "CudaStartedError" in benchmark["reason"]) == ("failed", True)
    assert "state_restored" in run.out
    assert "cuda:0 (NVIDIA H200)" in run.out


def test_the_controller_never_starts_cuda(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks run the benchmark (and lack such a device here): the process beside them is free."""
    install(monkeypatch, FakeNvml(FakeGpu()))
    project.write("test_it.py", BENCHMARK)
    run = project.run("--device=cuda", "--isolate")
    assert run.outcomes == {"test_x": "crashed"}
    assert "--device=cuda: torch " in run.out
    assert "; available: cpu" in run.out
    assert "CudaStartedError" not in run.out + run.err
