"""NVML's counters, clocks and energy on a GPU."""

from __future__ import annotations

from time import perf_counter, sleep

import pytest
import torch

from gpubench_plugin.bench.probing import wait_while_throttled
from gpubench_plugin.environment.hardware import gpu_facts
from gpubench_plugin.measure.probes.nvml import DeviceState
from gpubench_plugin.ranks.agreement import RankAgreement
from tests.support.gpu_selections import COUNTERS

pytest.importorskip("pynvml", reason="needs nvidia-ml-py")
pytestmark = pytest.mark.gpu_clocks
DEVICE = torch.device("cuda", 0)


def test_counters_keep_to_their_bounds() -> None:
    """Power, clocks and throttling follow the load; energy is the integral of power."""
    assert [*COUNTERS.measured().outcomes.values()] == ["measured"]


def _burn(seconds: float, state: DeviceState) -> None:
    """Multiply matrices for so long, with a reading every quarter of a second."""
    matrix = torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16)
    end = perf_counter() + seconds
    while perf_counter() < end:
        for _ in range(100):
            torch.mm(matrix, matrix)
        state.sample()
        torch.cuda.synchronize(DEVICE)


def test_a_gpu_that_has_nothing_to_do_is_soon_not_throttled() -> None:
    """After a load the wait ends within ten seconds, or has nothing to wait for."""
    with DeviceState(DEVICE) as state:
        state.begin()
        _burn(2.0, state)
        wait = wait_while_throttled(state.slowing_reasons, RankAgreement(), limit_s=10.0)
    assert wait is None or not wait.still_throttled


def test_whether_the_clock_is_locked_does_not_depend_on_the_moment() -> None:
    """Idle, at work and just after it: what is known is the same."""
    with DeviceState(DEVICE) as state:
        state.begin()
        readings = [_locked_clock_mhz()]
        _burn(2.0, state)
        readings += [_locked_clock_mhz()]
        sleep(0.5)
        readings += [_locked_clock_mhz()]
        sleep(5.0)
        readings += [_locked_clock_mhz()]
    assert len(set(readings) - {None}) <= 1


def _locked_clock_mhz() -> int | None:
    """Of the measured GPU, found by its UUID."""
    uuid = f"GPU-{torch.cuda.get_device_properties(DEVICE).uuid}"
    facts = gpu_facts()
    assert facts is not None
    (clock,) = (gpu["locked_clock_mhz"] for gpu in facts["devices"] if gpu["uuid"] == uuid)
    return None if clock is None else int(clock)
