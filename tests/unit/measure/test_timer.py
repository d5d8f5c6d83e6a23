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
