"""The suite on a GPU: what is measured and traced, and the bounds of its headline speeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from tests.support.gpu_selections import (
    BREADTH,
    COLD_START,
    DECODING,
    FIGURES,
    FULL_CONVOLUTIONS,
    FULL_TRAINING,
    HEADLINES,
    KERNELS,
    TINY_TRAINING,
    TRACED_TRAINING,
)

if TYPE_CHECKING:
    from tests.support.gpu_selections import Selection

TRACED_STEPS = 3  # the default of profiling.steps
LEAST_KERNELS = 100  # a ResNet-18 of 20 convolutions has more in one step


def name_of(selection: Selection) -> str:
    return selection.names[0]


@pytest.mark.gpu_suite
def test_tiny_training_is_measured_in_every_precision() -> None:
    """ResNet-18 trains and is measured in every precision an Ampere or newer device has."""
    run = TINY_TRAINING.measured()
    assert run.outcomes == dict.fromkeys(TINY_TRAINING.names, "measured")
    for benchmark in run.benchmarks.values():
        assert benchmark["metrics"]["peak_memory_bytes"]["value"] > 0


@pytest.mark.gpu_suite
def test_full_preset_is_measured_with_mfu_where_the_device_is_known() -> None:
    """ResNet-50 on ImageNet-shaped batches: throughput, memory, and MFU for a known device."""
    (benchmark,) = FULL_TRAINING.measured().benchmarks.values()
    assert benchmark["outcome"] == "measured"
    assert benchmark["metrics"]["samples_per_s"]["value"] > 0
    assert 0 < benchmark["metrics"].get("mfu", {"value": 0.5})["value"] < 1


@pytest.mark.gpu_suite
def test_kernels_have_their_clock() -> None:
    """Each is timed without its launches, with the cache that its case names."""
    benchmarks = KERNELS.measured().benchmarks
    assert {name: b["outcome"] for name, b in benchmarks.items()} == dict.fromkeys(
        KERNELS.names, "measured"
    )
    assert {name: b["timer"] for name, b in benchmarks.items()} == {
        name: f"cuda_kernel_{'cold' if 'cold' in name else 'hot'}" for name in KERNELS.names
    }
    assert [name for name, b in benchmarks.items() if "launch_bound" in b["flags"]] == []


@pytest.mark.gpu_suite
def test_convolutions_of_preset_full_are_accurate() -> None:
    """Whatever algorithms cuDNN takes, none has an error beyond the tolerance of fp32."""
    outcomes = FULL_CONVOLUTIONS.measured().outcomes
    assert outcomes == dict.fromkeys(FULL_CONVOLUTIONS.names, "measured")


@pytest.mark.gpu_suite
def test_cold_start_runs_no_process_for_the_clock() -> None:
    """After the first one only the timed ones run."""
    (benchmark,) = COLD_START.measured().benchmarks.values()
    assert benchmark["outcome"] == "measured"
    assert benchmark["metrics"].get("warmup_iterations", {"value": 0})["value"] == 0


@pytest.mark.gpu_suite
def test_trace_of_a_training_holds_its_kernels() -> None:
    """All of them, and each with its duration."""
    (name,) = TRACED_TRAINING.names
    kernels = [e for e in TRACED_TRAINING.measured().trace(name) if e.get("cat") == "kernel"]
    assert len(kernels) >= LEAST_KERNELS
    assert [kernel for kernel in kernels if not kernel.get("dur", 0) > 0] == []


@pytest.mark.gpu_suite
def test_decoding_replays_its_graph_in_each_step() -> None:
    """By ``reduce-overhead``, one row and many; eager decoding has kernels, and no graph."""
    run = DECODING.measured()
    assert run.outcomes == dict.fromkeys(DECODING.names, "measured")
    for name in DECODING.names:
        events = run.trace(name)
        assert any(event.get("cat") == "kernel" for event in events), name
        # The call of the CUDA runtime that replays a graph, as CUPTI names it.
        replays = sum(event.get("name") == "cudaGraphLaunch" for event in events)
        assert (replays == 0) if "eager" in name else (replays >= TRACED_STEPS), name


@pytest.mark.gpu_headline
@pytest.mark.parametrize("headline", HEADLINES, ids=name_of)
def test_headline_keeps_to_its_bounds(headline: Selection) -> None:
    """It is as fast as twenty steps by hand, and reaches the goals of this device, if any."""
    goals = FIGURES["goals"].get(torch.cuda.get_device_name(0), {})
    (benchmark,) = headline.measured(**goals.get(headline.names[0], {})).benchmarks.values()
    assert {"samples_per_s", "tokens_per_s"} & benchmark["metrics"].keys()


@pytest.mark.gpu_breadth
@pytest.mark.parametrize("selection", BREADTH, ids=name_of)
def test_breadth_has_a_number(selection: Selection) -> None:
    """At least one of each selection is measured, and the others are at most unsupported."""
    assert "measured" in selection.measured().outcomes.values()
