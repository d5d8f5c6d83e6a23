"""Which clock measures on which device."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.measure.loop import clock_for


@pytest.mark.parametrize(
    ("device", "choices", "timer"),
    [
        ("cpu", {}, "perf_counter_ns"),
        ("cuda:1", {}, "cuda_events"),
        ("cuda", {"timing": "kernel"}, "cuda_kernel_hot"),
        ("cuda", {"timing": "kernel", "cache": "cold"}, "cuda_kernel_cold"),
        ("mps", {}, "mps_synchronised"),
        ("xpu", {}, "xpu_synchronised"),
    ],
)
def test_every_device_has_its_clock(device: str, choices: dict[str, Any], timer: str) -> None:
    """The clock's name tells how time was taken; choosing one touches no device."""
    assert timer == clock_for(torch.device(device), **choices).timer


def test_an_unknown_device_has_no_clock() -> None:
    """A type of device that nobody thought of is unsupported."""
    with pytest.raises(Unsupported, match="'meta'"):
        clock_for(torch.device("meta"))


@pytest.mark.parametrize(
    ("threads", "flags"), [(1, ("descheduled",)), (2, ())], ids=["one thread", "two threads"]
)
def test_the_cpus_clock_knows_the_number_of_threads(threads: int, flags: tuple[str, ...]) -> None:
    """Processor time tells of lost time at one thread only."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        clock = clock_for(torch.device("cpu"))
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
