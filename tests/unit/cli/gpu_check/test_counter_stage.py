"""The stage of NVML's counters on a GPU on paper."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch

from gpubench_plugin.cli.gpu_check.stages import counters
from gpubench_plugin.core.errors import Unsupported
from tests.support.fake_counters import IDLE, UUID, FakeGpu, FakeNvml
from tests.support.gpu_stages import CannedRun, failed

if TYPE_CHECKING:
    from pathlib import Path

DEVICE = torch.device("cuda", 0)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    gpu = FakeGpu()
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(gpu))
    properties = SimpleNamespace(uuid=UUID)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    return gpu


@pytest.fixture
def run(tmp_path: Path) -> CannedRun:
    return CannedRun(folder=tmp_path, repository=tmp_path, limit_s=60)


def work(gpu: FakeGpu, *, busy_w: float = 600.0, told_w: float | None = None) -> counters.Work:
    """Draws 100 W at rest and `busy_w` at work; its readings tell `told_w`."""

    def burn() -> None:
        gpu.reasons, gpu.sm_mhz = 0, 1980
        gpu.run(0.1, watts=busy_w)
        gpu.watts = busy_w if told_w is None else told_w

    def wait() -> None:
        gpu.reasons, gpu.sm_mhz = IDLE, 345

    return counters.Work(
        device=DEVICE,
        burn=burn,
        wait=wait,
        sleep=lambda seconds: gpu.run(seconds, watts=100.0),
        now=gpu.now,
    )


def test_counters_that_follow_the_load_pass(run: CannedRun, gpu: FakeGpu) -> None:
    """Power, clocks, energy and throttling are those of the load."""
    counters.examine(run, work(gpu))

    assert failed(run) == []


def test_counters_that_do_not_fail(run: CannedRun, gpu: FakeGpu) -> None:
    """No more power at work than at rest, and energy that is not the integral of power."""
    counters.examine(run, work(gpu, busy_w=100.0, told_w=150.0))

    assert failed(run) == [
        "power at work over that at rest",
        "energy from the integral of power",
    ]


def test_a_fact_that_nvml_lacks_fails(
    run: CannedRun, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named."""
    library = FakeNvml(gpu, missing=("nvmlDeviceGetFieldValues",))
    monkeypatch.setitem(sys.modules, "pynvml", library)
    counters.examine(run, work(gpu))

    assert "facts that NVML does not tell" in failed(run)
    assert "throttled_fraction" not in failed(run)


def test_without_nvml_it_is_unsupported(
    run: CannedRun, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason says what to install."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(Unsupported, match="pip install"):
        counters.examine(run, work(gpu))
