"""A GPU whose counters move with a clock on paper, and the library that tells them."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

UUID = "5f0a1c2e-0000-1111-2222-333344445555"
IDLE = 0x1
POWER_NS, THERMAL_NS, ENERGY_MJ = 74, 75, 83
NOT_SUPPORTED = 3


class NVMLError(Exception):
    """The fake library's error."""


@dataclass
class FakeGpu:
    """A GPU and its clock: `run` lets time pass in a state."""

    time_s: float = 0.0
    counters: dict[int, int] = field(
        default_factory=lambda: dict.fromkeys((POWER_NS, THERMAL_NS, 269, 270, 271, ENERGY_MJ), 7)
    )
    reasons: int = IDLE
    sm_mhz: int = 345
    degrees: int = 40
    watts: float = 0.0

    def now(self) -> float:
        """Seconds since the start."""
        return self.time_s

    def run(self, seconds: float, *, watts: float = 0.0, slowed: int | None = None) -> None:
        """Let time pass at that power, slowed down for the reason counted by field `slowed`."""
        self.time_s += seconds
        self.watts = watts
        for counter, increment in ((ENERGY_MJ, seconds * watts * 1e3), (slowed, seconds * 1e9)):
            if counter in self.counters:
                self.counters[counter] += round(increment)


class FakeNvml(types.ModuleType):
    """A library that answers for a GPU; functions in `missing` fail, or are not there."""

    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, gpu: FakeGpu, *, missing: tuple[str, ...] = (), gone: bool = False) -> None:
        super().__init__("pynvml")
        self.calls: list[str] = []
        functions: dict[str, Callable[..., object]] = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetHandleByUUID": lambda uuid: {f"GPU-{UUID}": gpu}[uuid],
            "nvmlDeviceGetFieldValues": lambda gpu, fields: [*map(_value(gpu), fields)],
            "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu: gpu.reasons,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: gpu.reasons,
            "nvmlDeviceGetClockInfo": lambda gpu, kind: gpu.sm_mhz if kind == 1 else 3201,
            "nvmlDeviceGetPowerUsage": lambda gpu: round(gpu.watts * 1e3),
            "nvmlDeviceGetTemperatureV": lambda gpu, _: gpu.degrees,
            "nvmlDeviceGetTemperature": lambda gpu, _: gpu.degrees,
        }
        for name, function in functions.items():
            if name not in missing:
                setattr(self, name, self._noted(name, function))
            elif not gone:
                setattr(self, name, self._noted(name, _fail))

    def _noted(self, name: str, function: Callable[..., object]) -> Callable[..., object]:
        def noted(*arguments: object) -> object:
            self.calls.append(name)
            return function(*arguments)

        return noted


def _fail(*_: object) -> object:
    raise NVMLError


def _value(gpu: FakeGpu) -> Callable[[int], object]:
    def value(counter: int) -> object:
        known = counter in gpu.counters
        return SimpleNamespace(
            nvmlReturn=0 if known else NOT_SUPPORTED,
            valueType=3,
            value=SimpleNamespace(ullVal=gpu.counters.get(counter, 2**64 - 1), uiVal=0),
        )

    return value
