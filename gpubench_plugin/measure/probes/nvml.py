"""State of an NVIDIA GPU while it is measured: throttling, clocks, temperature, energy.

NVML counts the time during which the GPU was slowed down, and the energy, from the load of the
driver on. Differences of these counters miss nothing; readings at both ends of a measurement would
be those of an idle GPU, whose clocks say nothing about those under load. Clocks and reasons are
read inside the blocks.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Self

from gpubench_plugin.core.events import DeviceStateEvent
from gpubench_plugin.core.quality_flags import THROTTLED
from gpubench_plugin.core.records import Json
from gpubench_plugin.environment import nvml

if TYPE_CHECKING:
    import torch

# Bits of nvmlClocksEventReasons that slow the GPU down. Left out: idle, clocks set by the user,
# sync boost and the display clock setting. Source: NVML API reference.
_REASONS: Final = {
    0x0000_0000_0000_0004: "software power cap",
    0x0000_0000_0000_0008: "hardware slowdown",
    0x0000_0000_0000_0020: "software thermal slowdown",
    0x0000_0000_0000_0040: "hardware thermal slowdown",
    0x0000_0000_0000_0080: "hardware power brake",
}

_SOFTWARE_HEAT: Final = "software thermal slowdown"

_IDLE: Final = 0x0000_0000_0000_0001

# Fields that count nanoseconds in a state, by reason. Source: "Field Value Enums" in the NVML API
# reference, where the first has two names: NVML_FI_DEV_PERF_POLICY_POWER and
# NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP. Old drivers lack the others, and count all heat by
# NVML_FI_DEV_PERF_POLICY_THERMAL.
_SLOWED_NS: Final = {
    74: "software power cap",
    75: "thermal slowdown",
    269: "software thermal slowdown",
    270: "hardware thermal slowdown",
    271: "hardware power brake",
}

# NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION: millijoules since the driver was loaded.
_ENERGY_MJ: Final = 83

# Share of the measurement, or of its blocks, in a slowing state that is flagged; as of `contended`.
_SLOWED_SHARE: Final = 0.05

# GPUs update the counter of energy every 20 to 100 ms (Z. Yang et al., "Accurate and Convenient
# Energy Measurements for GPUs", SC 2024, https://arxiv.org/abs/2312.02741): 5% of two seconds.
_SHORTEST_ENERGY_WINDOW_S: Final = 2.0

# Readings above are none: NVML marks unknown ones by the largest number of their type. No GPU comes
# near.
_HIGHEST_MHZ: Final = 20_000
_HIGHEST_C: Final = 200
_HIGHEST_W: Final = 20_000

# Longest time that counts of a window over the window: the counters' clock is not the host's.
_TOLERANCE: Final = 1.5

_NANOSECONDS_PER_S: Final = 1e9
_MILLIJOULES_PER_J: Final = 1e3
_TEMPERATURE_GPU: Final = 0  # NVML_TEMPERATURE_GPU
_UNSIGNED_INT: Final = 1  # NVML_VALUE_TYPE_UNSIGNED_INT; the counters above are long otherwise


class DeviceState:
    """Context manager around a measurement on a device that `sharing_ranks` of its ranks share.

    It does nothing on other devices than NVIDIA's, and without the optional ``pynvml``. What NVML,
    the driver or the GPU lacks is missing in :attr:`facts` and named by :attr:`unknown`. The window
    of the counters begins with :meth:`begin`, and ends with the context.
    """

    def __init__(self, device: torch.device, *, sharing_ranks: int = 1) -> None:
        self._device = device
        self._sharing_ranks = sharing_ranks
        self._stack = ExitStack()
        self._library: Any = None
        self._handle: Any = None
        self._start: tuple[float, dict[int, int]] | None = None
        self._window_s = 0.0
        self._increments: dict[int, int] = {}
        self._sm_mhz, self._memory_mhz = array("d"), array("d")
        self._temperatures_c: list[float] = []
        self._samples = 0
        self._seen_reasons: Counter[str] = Counter()

    def __enter__(self) -> Self:
        if self._device.type == "cuda":
            self._library = self._stack.enter_context(nvml.opened())
        if self._library is not None:
            import torch

            # By UUID, since the indices of NVML and CUDA may differ.
            uuid = torch.cuda.get_device_properties(self._device).uuid
            self._handle = nvml.answer(self._library, "nvmlDeviceGetHandleByUUID", f"GPU-{uuid}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._start is not None:
            start_s, first = self._start
            self._read_temperature()
            last = self._counters()
            self._window_s = perf_counter() - start_s
            self._increments = {
                field: last[field] - value
                for field, value in first.items()
                if field in last and self._can_be_counted(field, last[field] - value)
            }
        self._library = self._handle = None
        self._stack.close()

    def begin(self) -> None:
        """Read the counters: the timed calls start now."""
        if self._handle is not None:
            self._read_temperature()
            self._start = perf_counter(), self._counters()

    def sample(self) -> None:
        """Read the clocks and slowing reasons of the device, if it is at work."""
        if self._start is None:
            return
        bits = self._reason_bits()
        if bits is not None and bits & _IDLE:  # of a step of the host, or one that had ended
            return
        readings = {nvml.SM_CLOCK: self._sm_mhz, nvml.MEMORY_CLOCK: self._memory_mhz}
        for kind, values in readings.items():
            clock = self._answer("nvmlDeviceGetClockInfo", kind)
            if _is_plausible(clock, _HIGHEST_MHZ):
                values.append(clock)
        if bits is not None:
            self._samples += 1
            self._seen_reasons.update(_slowing(bits))

    def slowing_reasons(self) -> tuple[str, ...]:
        """What slows the device down now; empty if nothing does, or unknown."""
        return _slowing(self._reason_bits() or 0)

    @property
    def is_watching(self) -> bool:
        """Whether NVML tells what slows the device down."""
        return self._reason_bits() is not None or not _SLOWED_NS.keys().isdisjoint(self._counters())

    @property
    def throttled_share(self) -> float | None:
        """Share of the window slowed for the most frequent reason; None if unknown.

        A reason that no counter counted has its share of the blocks: NVML has no counter of it, or
        the driver has it under another number.
        """
        increments = self._increments
        counted = {
            name: increments[field] for field, name in _SLOWED_NS.items() if field in increments
        }
        if (not counted or self._window_s <= 0) and not self._samples:
            return None
        has_heat = bool(counted.get("thermal slowdown"))
        shares = [
            count / self._samples
            for reason, count in self._seen_reasons.items()
            if not counted.get(reason) and not (has_heat and reason == _SOFTWARE_HEAT)
        ]
        if self._window_s > 0:
            shares += [ns / _NANOSECONDS_PER_S / self._window_s for ns in counted.values()]
        return min(1.0, max(shares, default=0.0))

    @property
    def flags(self) -> tuple[str, ...]:
        """``throttled``, if the device was slowed down for over 5% of the time."""
        return (THROTTLED,) if (self.throttled_share or 0.0) > _SLOWED_SHARE else ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons counted during the window, or met in a block."""
        counted = {name for field, name in _SLOWED_NS.items() if self._increments.get(field)}
        return tuple(sorted(counted | self._seen_reasons.keys()))

    @property
    def facts(self) -> Mapping[str, float]:
        """Known facts: clocks in MHz, temperature in °C, watts, joules of this rank."""
        facts: dict[str, float | None] = {
            "sm_clock_mhz": median(self._sm_mhz) if self._sm_mhz else None,
            "sm_clock_min_mhz": min(self._sm_mhz, default=None),
            "memory_clock_mhz": median(self._memory_mhz) if self._memory_mhz else None,
            "temperature_c": max(self._temperatures_c, default=None),
            "throttled_fraction": self.throttled_share,
        }
        energy_mj = self._increments.get(_ENERGY_MJ)
        if energy_mj is not None and self._window_s >= _SHORTEST_ENERGY_WINDOW_S:
            energy_j = energy_mj / _MILLIJOULES_PER_J
            facts["energy_j"] = energy_j / self._sharing_ranks
            facts["power_w"] = energy_j / self._window_s
            facts["energy_window_s"] = self._window_s
        return {name: value for name, value in facts.items() if value is not None}

    @property
    def event(self) -> Json | None:
        """Journal event of the reasons and of what NVML does not tell; None without NVML."""
        if self._start is None:
            return None
        known = set(self.facts) | ({"energy_j"} if _ENERGY_MJ in self._increments else set())
        clocks = ("sm_clock_mhz", "memory_clock_mhz")
        expected = (*clocks, "temperature_c", "throttled_fraction", "energy_j")
        unknown = tuple(name for name in expected if name not in known)
        return DeviceStateEvent(slowed_by=self.reasons, unknown=unknown).line()

    def _answer(self, function: str, *arguments: object) -> Any:
        return nvml.answer(self._library, function, self._handle, *arguments)

    def _counters(self) -> dict[int, int]:
        """Values of the counters that this GPU has."""
        fields = [*_SLOWED_NS, _ENERGY_MJ]
        values = self._answer("nvmlDeviceGetFieldValues", fields)
        with suppress(AttributeError, TypeError):  # of another form
            return {
                field: int(
                    value.value.uiVal if value.valueType == _UNSIGNED_INT else value.value.ullVal
                )
                for field, value in zip(fields, values, strict=False)
                if value.nvmlReturn == 0
            }
        return {}

    def _can_be_counted(self, field: int, increment: int) -> bool:
        """Whether a counter can have counted that much in the window.

        One that went back was reset. Energy that stands still is not counted, though it is told.
        """
        if field == _ENERGY_MJ:
            highest_mj = _HIGHEST_W * self._window_s * _MILLIJOULES_PER_J
            is_long = self._window_s >= _SHORTEST_ENERGY_WINDOW_S
            return int(is_long) <= increment <= highest_mj
        return 0 <= increment <= _TOLERANCE * self._window_s * _NANOSECONDS_PER_S

    def _reason_bits(self) -> int | None:
        """Current reasons; None if unknown. The older of the two names goes with CUDA 14."""
        for kind in ("Event", "Throttle"):
            bits = self._answer(f"nvmlDeviceGetCurrentClocks{kind}Reasons")
            if isinstance(bits, int):
                return bits
        return None

    def _read_temperature(self) -> None:
        """Keep the GPU's temperature. The older of the two names goes with CUDA 14."""
        for function in ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"):
            degrees = self._answer(function, _TEMPERATURE_GPU)
            if _is_plausible(degrees, _HIGHEST_C):
                self._temperatures_c.append(float(degrees))
                return


def _is_plausible(value: object, highest: float) -> bool:
    """Whether a reading is a positive number up to `highest`, not a mark of an unknown one."""
    return isinstance(value, int | float) and 0 < value <= highest


def _slowing(bits: int) -> tuple[str, ...]:
    return tuple(name for bit, name in _REASONS.items() if bits & bit)
