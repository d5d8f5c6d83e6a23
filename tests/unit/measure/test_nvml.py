"""Throttling, as a fake of NVIDIA's management library tells it."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable

import pytest
import torch

from gpubench_plugin.measure.probes import Throttling

CUDA = torch.device("cuda", 0)
UUID = "5f0a1c2e-0000-1111-2222-333344445555"
IDLE, USER_CLOCKS, POWER_CAP, HARDWARE, SOFTWARE_HEAT = 0x1, 0x2, 0x4, 0x8, 0x20


class NVMLError(Exception):
    """The fake library's error."""


class FakeNvml(types.ModuleType):
    """A library that answers with these reasons in turn."""

    NVMLError = NVMLError

    def __init__(self, *answers: int | None, fails_at: str = "") -> None:
        super().__init__("pynvml")
        self.asked: list[str] = []
        self._answers = iter(answers)
        self._fails_at = fails_at

    def _note(self, call: str) -> None:
        self.asked.append(call)
        if call == self._fails_at:
            raise NVMLError(call)

    def nvmlInit(self) -> None:  # noqa: N802 # NVML's name
        self._note("init")

    def nvmlShutdown(self) -> None:  # noqa: N802 # NVML's name
        self._note("shutdown")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802 # NVML's name
        self._note("handle")
        return uuid

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:  # noqa: N802 # NVML's name
        assert handle == f"GPU-{UUID}"
        self._note("reasons")
        answer = next(self._answers)
        if answer is None:
            raise NVMLError
        return answer


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeNvml], FakeNvml]:
    """Install a fake library, on a machine with one GPU."""

    def installed(nvml: FakeNvml) -> FakeNvml:
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        monkeypatch.setattr(
            torch.cuda, "get_device_properties", lambda _: types.SimpleNamespace(uuid=UUID)
        )
        return nvml

    return installed


def watched(device: torch.device = CUDA) -> Throttling:
    with Throttling(device) as throttling:
        pass
    return throttling


def test_reasons_before_and_after_are_joined(install: Callable[[FakeNvml], FakeNvml]) -> None:
    """A reason at the entry or the exit is enough for the flag; both are named."""
    nvml = install(FakeNvml(IDLE | SOFTWARE_HEAT, POWER_CAP))
    throttling = watched()
    assert throttling.reasons == ("software power cap", "software thermal slowdown")
    assert throttling.flags == ("throttled",)
    assert nvml.asked == ["init", "handle", "reasons", "reasons", "shutdown"]


def test_an_idle_gpu_is_not_throttled(install: Callable[[FakeNvml], FakeNvml]) -> None:
    """Low clocks of an idle GPU, or of the user's making, are no throttling."""
    install(FakeNvml(IDLE, USER_CLOCKS))
    throttling = watched()
    assert (throttling.reasons, throttling.flags) == ((), ())


@pytest.mark.parametrize("fails_at", ["init", "handle", "reasons"])
def test_a_library_that_fails_leaves_the_reasons_unknown(
    install: Callable[[FakeNvml], FakeNvml], fails_at: str
) -> None:
    """No driver, a device it does not know, or an unsupported question: None, and no flag."""
    install(FakeNvml(HARDWARE, HARDWARE, fails_at=fails_at))
    throttling = watched()
    assert (throttling.reasons, throttling.flags) == (None, ())


def test_one_answer_is_enough(install: Callable[[FakeNvml], FakeNvml]) -> None:
    """What could be read at one end is not lost because the other failed."""
    install(FakeNvml(HARDWARE, None))
    assert watched().reasons == ("hardware slowdown",)


def test_without_the_library_the_reasons_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is optional."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert watched().reasons is None


def test_other_devices_are_not_asked_for(install: Callable[[FakeNvml], FakeNvml]) -> None:
    """On a CPU the library is not even opened."""
    nvml = install(FakeNvml())
    assert watched(torch.device("cpu")).reasons is None
    assert nvml.asked == []
