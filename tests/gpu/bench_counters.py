"""A benchmark with fixed bounds: NVML's counters while the device rests, and while it works."""

from __future__ import annotations

from statistics import median
from time import perf_counter, sleep
from typing import TYPE_CHECKING

import pytest
import torch

from gpubench_plugin.measure.probes.nvml import DeviceState

if TYPE_CHECKING:
    from collections.abc import Callable

WINDOW_S = 3.0  # energy is not told of less than two seconds
BOUNDS = {
    "power_at_work_over_rest": ">=1.5",
    # Between the clock of an idle H200 (345 MHz) and that of a busy one (1,980).
    "sm_clock_at_work": ">=500",
    "throttled_at_rest": "<=0.05",
    "energy_from_power": "<=0.1",  # between the counter and sampled power, a mean itself
    "reading_s": "<=0.001",
}
UNITS = {"sm_clock_at_work": "MHz", "power_at_work_over_rest": "1", "reading_s": "s"}


class SampledState(DeviceState):
    """Also keeps the power at each sample, and how long a reading took."""

    def __init__(self, device: torch.device, now: Callable[[], float]) -> None:
        super().__init__(device)
        self._now = now
        self.powers_w: list[float] = []
        self.readings_s: list[float] = []

    def sample(self) -> None:
        if self._start is None:
            return
        start = self._now()
        super().sample()
        self.readings_s.append(self._now() - start)
        self.powers_w.append(self._answer("nvmlDeviceGetPowerUsage") / 1000)


def counters(
    device: torch.device,
    *,
    burn: Callable[[], object],
    wait: Callable[[], object],
    rest: Callable[[float], object] = sleep,
    now: Callable[[], float] = perf_counter,
) -> dict[str, float]:
    """What the counters say of a device that rests, and then works: `burn` queues some."""

    def work(state: SampledState, seconds: float) -> None:
        end = now() + seconds
        while now() < end:
            burn()
            state.sample()
            wait()

    with SampledState(device, now) as idle:
        idle.begin()
        rest(WINDOW_S)
    with SampledState(device, now) as busy:
        work(busy, 2.0)  # power is a mean of up to a second
        busy.begin()
        work(busy, WINDOW_S)
    assert busy.event
    assert not busy.event["unknown"], busy.event
    power_w = busy.facts["power_w"]
    return {
        "power_at_work_over_rest": power_w / idle.facts["power_w"],
        "sm_clock_at_work": busy.facts["sm_clock_mhz"],
        "throttled_at_rest": idle.throttled_share,
        "energy_from_power": abs(power_w * len(busy.powers_w) / sum(busy.powers_w) - 1),
        "reading_s": median(busy.readings_s),
    }


@pytest.mark.gpubench(limits=BOUNDS)
def test_counters(gpubench, torch_device):
    """Power, clocks and throttling follow the load; energy is the integral of power."""
    pytest.importorskip("pynvml", reason="needs nvidia-ml-py")
    matrix = torch.randn(8192, 8192, device=torch_device, dtype=torch.bfloat16)

    def burn() -> None:
        for _ in range(50):
            torch.mm(matrix, matrix)

    for name, value in counters(torch_device, burn=burn, wait=torch.cuda.synchronize).items():
        gpubench.record(name, value, unit=UNITS.get(name, "fraction"))
    gpubench(burn)
