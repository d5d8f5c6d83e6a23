"""State of a GPU while it is measured, as a fake of NVIDIA's management library tells it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace

import pynvml
import pytest
import torch

from gpubench_plugin.environment import nvml
from gpubench_plugin.measure.probes import nvml as probes_nvml
from gpubench_plugin.measure.probes.nvml import DeviceState
from tests.support import fake_counters
from tests.support.fake_counters import IDLE, POWER_NS, THERMAL_NS, UUID, FakeGpu, FakeNvml

CUDA = torch.device("cuda", 0)
USER_CLOCKS, POWER_CAP, HARDWARE, SOFTWARE_HEAT = 0x2, 0x4, 0x8, 0x20
REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")


Watch = Callable[..., tuple[DeviceState, FakeNvml]]


@pytest.fixture
def gpu() -> FakeGpu:
    return FakeGpu()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch, gpu: FakeGpu) -> Watch:
    """Watch the GPU through timed calls, on a machine with a fake library."""

    def watched(
        timed: Callable[[DeviceState], object] = lambda _: None,
        *,
        missing: tuple[str, ...] = (),
        gone: bool = False,
        sharing_ranks: int = 1,
    ) -> tuple[DeviceState, FakeNvml]:
        library = FakeNvml(gpu, missing=missing, gone=gone)
        monkeypatch.setitem(sys.modules, "pynvml", library)
        monkeypatch.setattr(
            torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid=UUID)
        )
        monkeypatch.setattr("gpubench_plugin.measure.probes.nvml.perf_counter", gpu.now)
        with DeviceState(CUDA, sharing_ranks=sharing_ranks) as state:
            gpu.run(1.0, watts=100, slowed=POWER_NS)  # the warm-up
            state.begin()
            timed(state)
        gpu.run(1.0, watts=100, slowed=POWER_NS)
        return state, library

    return watched


@pytest.mark.parametrize("counter", [POWER_NS, THERMAL_NS, 269, 270, 271])
@pytest.mark.parametrize(("slowed_s", "flags"), [(0.04, ()), (0.06, ("throttled",))])
def test_slow_time_between_two_idle_ends_is_counted(
    watch: Watch, gpu: FakeGpu, counter: int, slowed_s: float, flags: tuple[str, ...]
) -> None:
    """Over 5% of the timed calls in a slowing state are flagged, whatever the ends look like."""

    def timed(_: DeviceState) -> None:
        gpu.run(0.5)
        gpu.run(slowed_s, slowed=counter)
        gpu.run(0.5 - slowed_s)

    state, _ = watch(timed)
    assert state.throttled_share == pytest.approx(slowed_s)
    assert state.flags == flags
    assert len(state.reasons) == 1


def test_the_warm_up_and_what_follows_do_not_count(watch: Watch, gpu: FakeGpu) -> None:
    """A device that was slowed down before and after, but not during the timed calls, is fine."""
    state, _ = watch(lambda _: gpu.run(1.0))
    assert (state.throttled_share, state.flags, state.reasons) == (0.0, (), ())


@pytest.mark.parametrize(("slow_blocks", "flags"), [(1, ()), (2, ("throttled",))])
def test_without_counters_the_blocks_tell(
    watch: Watch, gpu: FakeGpu, slow_blocks: int, flags: tuple[str, ...]
) -> None:
    """Where the driver counts nothing, the share of blocks under a slowing reason decides."""
    gpu.counters.clear()

    def timed(state: DeviceState) -> None:
        for block in range(30):
            gpu.reasons = POWER_CAP if block < slow_blocks else USER_CLOCKS
            gpu.run(0.05)
            state.sample()
        gpu.reasons = HARDWARE

    state, _ = watch(timed)
    assert state.flags == flags
    assert state.reasons == ("software power cap",)


def test_an_idle_device_is_no_device_under_load(watch: Watch, gpu: FakeGpu) -> None:
    """A block whose work had ended when it was read tells nothing about clocks and reasons."""
    gpu.counters.clear()

    def timed(state: DeviceState) -> None:
        gpu.reasons = IDLE | SOFTWARE_HEAT
        gpu.run(1.0)
        state.sample()

    state, _ = watch(timed)
    assert (state.flags, state.reasons) == ((), ())
    assert "sm_clock_mhz" not in state.facts


def test_clocks_are_those_inside_the_blocks(watch: Watch, gpu: FakeGpu) -> None:
    """Clocks of the busy device are kept, not those at the ends; of the temperature the higher."""

    def timed(state: DeviceState) -> None:
        gpu.reasons = 0
        for gpu.sm_mhz in (1980, 1755, 1965):
            gpu.run(0.1)
            state.sample()
        gpu.sm_mhz, gpu.degrees = 345, 71

    state, _ = watch(timed)
    assert state.facts == {
        "sm_clock_mhz": 1965,
        "sm_clock_min_mhz": 1755,
        "memory_clock_mhz": 3201,
        "temperature_c": 71,
        "throttled_fraction": 0.0,
    }


@pytest.mark.parametrize("sharing_ranks", [1, 2])
def test_energy_is_that_of_the_timed_calls(watch: Watch, gpu: FakeGpu, sharing_ranks: int) -> None:
    """Ranks that share a device have equal parts of its energy, and the same power."""
    state, _ = watch(lambda _: gpu.run(2.01, watts=400), sharing_ranks=sharing_ranks)
    assert state.facts["energy_j"] == pytest.approx(804 / sharing_ranks)
    assert state.facts["power_w"] == pytest.approx(400)


@pytest.mark.parametrize("jump", [2**64 - 8, 2**63, 10**12, None], ids=str)
def test_a_counter_that_jumps_is_unknown(watch: Watch, gpu: FakeGpu, jump: int | None) -> None:
    """No GPU uses a gigawatt; a driver that was loaded anew starts at zero."""

    def timed(_: DeviceState) -> None:
        gpu.run(3.0, watts=400)
        gpu.counters = {
            field: 0 if jump is None else count + jump for field, count in gpu.counters.items()
        }

    state, _ = watch(timed)
    assert not {"energy_j", "power_w", "throttled_fraction"} & set(state.facts)
    assert state.flags == ()
    assert state.event is not None
    assert {"energy_j", "throttled_fraction"} <= set(state.event["unknown"])


@pytest.mark.parametrize(
    ("seconds", "watts", "is_unknown"), [(1.99, 400, False), (3.0, 0, True)], ids=["short", "still"]
)
def test_energy_that_tells_nothing_is_no_fact(
    watch: Watch, gpu: FakeGpu, seconds: float, watts: int, is_unknown: bool
) -> None:
    """Below two seconds the counter is too coarse; one that stands still does not count."""
    state, _ = watch(lambda _: gpu.run(seconds, watts=watts))
    assert not {"energy_j", "power_w"} & set(state.facts)
    assert state.event is not None
    assert ("energy_j" in state.event["unknown"]) is is_unknown


@pytest.mark.parametrize("reading", [2**32 - 1, -1, 0, float("nan"), None, "345", b"\xff"], ids=str)
def test_a_reading_that_is_none_is_unknown(watch: Watch, gpu: FakeGpu, reading: object) -> None:
    """NVML marks an unknown value by the largest of its type; other libraries have other ways."""

    def timed(state: DeviceState) -> None:
        gpu.sm_mhz = gpu.degrees = reading  # type: ignore[assignment] # what no driver should do
        gpu.reasons = 0
        state.sample()

    gpu.degrees = reading  # type: ignore[assignment] # the same
    state, _ = watch(timed)
    assert not {"sm_clock_mhz", "sm_clock_min_mhz", "temperature_c"} & set(state.facts)
    assert state.facts["memory_clock_mhz"] == 3201


@pytest.mark.parametrize("error", [ValueError, TypeError, OSError, UnicodeError])
def test_a_library_that_fails_in_another_way_is_harmless(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """Nothing that was measured is lost for a fact beside it."""

    def fail(*_: object) -> object:
        raise error

    monkeypatch.setattr(fake_counters, "_fail", fail)
    state, _ = watch(lambda state: state.sample(), missing=ALL)
    assert state.facts == {}


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ((), True),
        (("nvmlDeviceGetFieldValues",), True),
        (REASONS, True),
        (("nvmlDeviceGetFieldValues", *REASONS), False),
    ],
)
def test_a_gpu_is_watched_where_its_slowing_shows(
    watch: Watch, missing: tuple[str, ...], expected: bool
) -> None:
    """By a counter or by reasons; a GPU that tells its name only is not."""
    watched: list[bool] = []
    watch(lambda state: watched.append(state.is_watching), missing=missing)
    assert watched == [expected]


ALL = (
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetTemperature",
)


@pytest.mark.parametrize("gone", [True, False], ids=["absent", "failing"])
@pytest.mark.parametrize("missing", [*((name,) for name in ALL), ALL], ids=lambda names: names[-1])
def test_a_function_that_is_missing_is_harmless(
    watch: Watch, gpu: FakeGpu, missing: tuple[str, ...], gone: bool
) -> None:
    """What the library or the GPU lacks is named in the journal; the rest is still known."""

    def timed(state: DeviceState) -> None:
        gpu.reasons = SOFTWARE_HEAT
        gpu.run(3.0, watts=400, slowed=269)
        state.sample()

    state, library = watch(timed, missing=missing, gone=gone)
    unknown = {
        "nvmlDeviceGetFieldValues": {"energy_j"},
        "nvmlDeviceGetClockInfo": {"sm_clock_mhz", "memory_clock_mhz"},
    }
    expected = (
        {"sm_clock_mhz", "memory_clock_mhz", "temperature_c", "throttled_fraction", "energy_j"}
        if missing == ALL
        else unknown.get(missing[0], set())
    )
    assert state.event is not None
    assert set(state.event["unknown"]) == expected
    assert library.calls[-1] == "nvmlShutdown"


@pytest.mark.parametrize("missing", ["nvmlInit", "nvmlDeviceGetHandleByUUID"])
def test_without_a_driver_or_its_device_nothing_is_known(
    watch: Watch, gpu: FakeGpu, missing: str
) -> None:
    """No driver, or a device that it does not know: no facts, no flags and no event."""

    def timed(state: DeviceState) -> None:
        gpu.run(3.0, slowed=POWER_NS)
        state.sample()

    state, _ = watch(timed, missing=(missing,))
    assert (state.facts, state.flags, state.event) == ({}, (), None)
    assert state.slowing_reasons() == ()


def test_slowing_reasons_are_those_of_now(watch: Watch, gpu: FakeGpu) -> None:
    """An idle device, or one whose clocks the user has set, is not slowed down."""
    current: list[tuple[str, ...]] = []

    def timed(state: DeviceState) -> None:
        for gpu.reasons in (IDLE | SOFTWARE_HEAT, IDLE, USER_CLOCKS):
            current.append(state.slowing_reasons())

    watch(timed)
    assert current == [("software thermal slowdown",), (), ()]


def test_without_the_library_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is optional."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with DeviceState(CUDA) as state:
        state.begin()
        state.sample()
    assert (state.facts, state.flags, state.event) == ({}, (), None)


@pytest.mark.parametrize("counters", ["absent", "standing still"])
def test_a_reason_that_no_counter_counts_is_judged_by_its_blocks(
    watch: Watch, gpu: FakeGpu, counters: str
) -> None:
    """Drivers have no counter of some reasons, or count them in a field of another number."""
    if counters == "absent":
        gpu.counters = {POWER_NS: 7, THERMAL_NS: 7}

    def timed(state: DeviceState) -> None:
        for block in range(10):
            gpu.run(0.1)
            gpu.reasons = HARDWARE if block < 3 else 0
            state.sample()

    state, _ = watch(timed)
    assert state.throttled_share == pytest.approx(0.3)
    assert (state.flags, state.reasons) == (("throttled",), ("hardware slowdown",))


def test_numbers_and_names_are_those_of_nvidias_package() -> None:
    """Fields, reasons and kinds, which have numbers here, and the fake library's functions."""
    fields = [
        pynvml.NVML_FI_DEV_PERF_POLICY_POWER,
        pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL,
        pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
        pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
        pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN,
        pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
    ]
    assert fields == [*probes_nvml._SLOWED_NS, probes_nvml._ENERGY_MJ]
    reasons = [
        pynvml.nvmlClocksEventReasonSwPowerCap,
        pynvml.nvmlClocksEventReasonHwSlowdown,
        pynvml.nvmlClocksEventReasonSwThermalSlowdown,
        pynvml.nvmlClocksEventReasonHwThermalSlowdown,
        pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown,
        pynvml.nvmlClocksEventReasonGpuIdle,
    ]
    assert reasons == [*probes_nvml._REASONS, probes_nvml._IDLE]
    clocks = [pynvml.NVML_CLOCK_GRAPHICS, pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM]
    assert clocks == [nvml.GRAPHICS_CLOCK, nvml.SM_CLOCK, nvml.MEMORY_CLOCK]
    assert pynvml.NVML_TEMPERATURE_GPU == probes_nvml._TEMPERATURE_GPU
    assert pynvml.NVML_VALUE_TYPE_UNSIGNED_INT == probes_nvml._UNSIGNED_INT
    functions = [name for name in vars(FakeNvml(FakeGpu())) if name.startswith("nvml")]
    assert len(functions) == 10
    assert all(hasattr(pynvml, name) for name in functions)
