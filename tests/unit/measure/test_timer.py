"""Which clock measures on which device."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gpubench_plugin.config import MeasureSection
from gpubench_plugin.errors import Unsupported
from gpubench_plugin.measure.clocks import clock_for


@pytest.mark.parametrize(
    ("device", "keys", "timer"),
    [
        ("cpu", {}, "perf_counter_ns"),
        ("cuda:1", {}, "cuda_events"),
        ("cuda", {"timing": "kernel"}, "cuda_kernel_hot"),
        ("cuda", {"timing": "kernel", "cache": "cold"}, "cuda_kernel_cold"),
        ("mps", {}, "mps_synchronised"),
        ("xpu", {}, "xpu_synchronised"),
    ],
)
def test_every_device_has_its_clock(device: str, keys: dict[str, Any], timer: str) -> None:
    """The clock's name tells how time was taken; choosing one touches no device."""
    assert timer == clock_for(torch.device(device), MeasureSection(**keys)).timer


@pytest.mark.parametrize(
    ("device", "keys", "timer"),
    [
        ("cpu", {}, "perf_counter_ns"),
        ("cuda", {}, "cuda_kernel_hot"),
        ("cuda", {"cache": "cold"}, "cuda_kernel_cold"),
        ("cuda", {"timing": "step"}, "cuda_events"),
        ("mps", {}, "mps_synchronised"),
    ],
)
def test_marked_kernels_are_timed_as_such_on_cuda(
    device: str, keys: dict[str, Any], timer: str
) -> None:
    """Unless the key states another timing; on other devices the mark has no part in it."""
    clock = clock_for(torch.device(device), MeasureSection(**keys), marked="kernel")
    assert timer == clock.timer


@pytest.mark.parametrize("device", ["cpu", "mps", "xpu"])
def test_kernels_are_timed_on_cuda_only(device: str) -> None:
    """Elsewhere timing: kernel is unsupported, and the reason names the key and the device."""
    with pytest.raises(Unsupported, match=f"measure.timing=kernel .* not '{device}'"):
        clock_for(torch.device(device), MeasureSection(timing="kernel"))


def test_an_unknown_device_has_no_clock() -> None:
    """A type of device that nobody thought of is unsupported."""
    with pytest.raises(Unsupported, match="'meta'"):
        clock_for(torch.device("meta"), MeasureSection())


@pytest.mark.parametrize(
    ("threads", "flags"), [(1, ("descheduled",)), (2, ())], ids=["one thread", "two threads"]
)
def test_the_cpus_clock_knows_the_number_of_threads(threads: int, flags: tuple[str, ...]) -> None:
    """Processor time tells of lost time at one thread only."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        clock = clock_for(torch.device("cpu"), MeasureSection())
    finally:
        torch.set_num_threads(before)
    evidence = {
        "calls": 10,
        "wall_ns": 100,
        "cpu_ns": 50,
        "voluntary_switches": 0,
        "involuntary_switches": 1,
    }
    assert flags == clock.flags(evidence)
