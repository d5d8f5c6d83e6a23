"""NVML's counters, clocks and energy while the device rests, and while it works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Final

import torch

from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.environment import nvml
from gpubench_plugin.measure.probes.nvml import DeviceState

if TYPE_CHECKING:
    from gpubench_plugin.cli.gpu_check.stage import StageRun

_WINDOW_S: Final = 3.0
"""Longer than the window below which energy is not told (two seconds)."""
_BUSY_POWER: Final = 1.5
_ENERGY_LIMIT: Final = 10.0
"""Percent between the counter and the mean of sampled power; readings are means themselves."""
_WORKING_MHZ: Final = 500
"""Between the clock of an idle H200 (345 MHz) and that of a busy one (1,980)."""
_READING_LIMIT_S: Final = 0.001


@dataclass(frozen=True, kw_only=True)
class Work:
    """Work of the device: `burn` queues some, and `wait` waits for it."""

    device: torch.device
    burn: Callable[[], object]
    wait: Callable[[], object]
    sleep: Callable[[float], object] = sleep
    now: Callable[[], float] = perf_counter


class _Sampled(DeviceState):
    """Also keeps the power at each sample, and how long a reading took."""

    def __init__(self, work: Work):
        super().__init__(work.device, now=work.now)
        self.powers_w: list[float] = []
        self.readings_s: list[float] = []
        self._clock = work.now

    def sample(self) -> None:
        if self._start is None:
            return
        start = self._clock()
        super().sample()
        self.readings_s.append(self._clock() - start)
        power_mw = self._answer("nvmlDeviceGetPowerUsage")
        if power_mw is not None:
            self.powers_w.append(power_mw / 1000)


def counters(run: StageRun) -> None:
    """Check the counters of the device.

    Raises:
        Unsupported: ``pynvml`` is not installed.
    """
    device = torch.device("cuda", 0)
    matrix = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)

    def burn() -> None:
        for _ in range(50):
            torch.mm(matrix, matrix)

    examine(run, Work(device=device, burn=burn, wait=torch.cuda.synchronize))


def examine(run: StageRun, work: Work) -> None:
    """Check the counters of any device."""
    with nvml.opened() as library:
        if library is None:
            raise Unsupported("NVML does not answer: pip install 'pytest-gpubench[gpu]'")
    idle, busy = _at_rest(work), _at_work(work)
    event = busy.event or {"unknown": ["everything"]}
    run.fact(
        idle=dict(idle.facts),
        busy=dict(busy.facts),
        slowed_by=list(busy.reasons),
        unknown=event["unknown"],
    )
    run.check("facts that NVML does not tell", len(event["unknown"]), "equal", 0)
    power_w, rest_w = busy.facts.get("power_w"), idle.facts.get("power_w")
    ratio = power_w / rest_w if power_w and rest_w else None
    run.check("power at work over that at rest", ratio, "at_least", _BUSY_POWER)
    run.check("SM clock at work", busy.facts.get("sm_clock_mhz"), "at_least", _WORKING_MHZ, "MHz")
    run.check("share of rest that counts as throttled", idle.throttled_share, "at_most", 0.05)
    mean_w = sum(busy.powers_w) / len(busy.powers_w) if busy.powers_w else None
    error = None if not (power_w and mean_w) else abs(power_w / mean_w - 1) * 100
    run.check("energy from the integral of power", error, "at_most", _ENERGY_LIMIT, "%")
    slowest_s = sorted(busy.readings_s)[len(busy.readings_s) // 2] if busy.readings_s else None
    run.check("median of a reading", slowest_s, "at_most", _READING_LIMIT_S, "s")


def _at_rest(work: Work) -> _Sampled:
    with _Sampled(work) as state:
        state.begin()
        work.sleep(_WINDOW_S)
    return state


def _at_work(work: Work) -> _Sampled:
    with _Sampled(work) as state:
        _spend(work, state, 2.0)  # power is a mean of up to a second
        state.begin()
        _spend(work, state, _WINDOW_S)
    return state


def _spend(work: Work, state: _Sampled, seconds: float) -> None:
    end = work.now() + seconds
    while work.now() < end:
        work.burn()
        state.sample()
        work.wait()
