"""What only a GPU can show; skipped, with the reason, where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
import torch

from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.measure.clocks.select import clock_for
from gpubench_plugin.measure.loop import measure
from gpubench_plugin.ranks.process_group import RankAgreement
from tests.support.gpu_selections import FULL_TRAINING, TINY_TRAINING

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("cache", ["hot", "cold"])
def test_kernels_are_timed_without_launch_latency(cache: Literal["hot", "cold"]) -> None:
    """A small kernel is timed by device events; no launch-bound flag is raised."""
    device = torch.device("cuda:0")
    values = torch.randn(1 << 22, device=device)
    clock = clock_for(device, timing="kernel", cache=cache)
    samples = measure(values.neg_, clock=clock, section=MeasureSection(), agreement=RankAgreement())
    assert "launch_bound" not in samples.flags
    assert min(samples.durations_s) > 0


def test_tiny_training_is_measured_in_every_precision(tmp_path: Path) -> None:
    """ResNet-18 trains and is measured in every precision an Ampere or newer device has."""
    benchmarks = TINY_TRAINING.measured(tmp_path)
    assert {name: b["outcome"] for name, b in benchmarks.items()} == dict.fromkeys(
        TINY_TRAINING.names, "measured"
    )
    for benchmark in benchmarks.values():
        assert benchmark["metrics"]["peak_memory_bytes"]["value"] > 0


def test_full_preset_is_measured_with_mfu_where_the_device_is_known(tmp_path: Path) -> None:
    """ResNet-50 on ImageNet-shaped batches: throughput, memory, and MFU for a known device."""
    benchmarks = FULL_TRAINING.measured(tmp_path)
    (benchmark,) = (benchmarks[name] for name in FULL_TRAINING.names)
    assert benchmark["outcome"] == "measured"
    assert benchmark["metrics"]["samples_per_s"]["value"] > 0
    assert 0 < benchmark["metrics"].get("mfu", {"value": 0.5})["value"] < 1
