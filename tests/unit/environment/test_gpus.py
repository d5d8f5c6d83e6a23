"""Tests of the facts about GPUs, with the driver's files and a stand-in for NVML."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.environment import hardware
from tests.support.fake_gpus import GIB, FakeGpu, FakeNvml, NoAnswerError

if TYPE_CHECKING:
    from pathlib import Path

VERSION = """\
NVRM version: NVIDIA UNIX {kind}  580.65.06  Release Build  (builder@host)
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)
"""
INFORMATION = """\
Model: \t\t NVIDIA H200
IRQ:   \t\t 219
GPU UUID: \t GPU-01234567-89ab-cdef-0123-456789abcdef
Video BIOS: \t 96.00.74.00.01
Bus Type: \t PCIe
"""
KEYS = (
    *("name", "uuid", "memory_bytes", "power_limit_w", "applications_clocks_mhz"),
    *("locked_clock_mhz", "mig"),
)


@pytest.fixture(autouse=True)
def no_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Neither this machine's driver nor its pynvml takes part; the folder of driver files."""
    monkeypatch.setattr(hardware, "DRIVER_FILES", tmp_path / "nvidia")
    monkeypatch.setattr(hardware, "_FALLING_S", 0.0)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(nvmlInit=None))
    return tmp_path / "nvidia"


def known(monkeypatch: pytest.MonkeyPatch, *gpus: FakeGpu, **system: Any) -> list[tuple[Any, ...]]:
    """What NVML tells of these GPUs, in the order of `KEYS`."""
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(*gpus, **system))
    facts = hardware.gpu_facts()
    assert facts is not None
    assert facts["driver"] == "580.65.06"
    return [tuple(gpu[key] for key in KEYS) for gpu in facts["devices"]]


def test_machine_without_gpu() -> None:
    """Without a driver there are no facts."""
    assert hardware.gpu_facts() is None


@pytest.mark.parametrize("kind", ["x86_64 Kernel Module", "Open Kernel Module for x86_64"])
def test_facts_from_the_drivers_files(no_driver: Path, kind: str) -> None:
    """Where NVML does not answer, the driver's files tell name and UUID."""
    (no_driver / "gpus" / "0000:01:00.0").mkdir(parents=True)
    (no_driver / "version").write_text(VERSION.format(kind=kind))
    (no_driver / "gpus" / "0000:01:00.0" / "information").write_text(INFORMATION)
    device = dict.fromkeys(KEYS) | {
        "name": "NVIDIA H200",
        "uuid": "GPU-01234567-89ab-cdef-0123-456789abcdef",
    }
    assert hardware.gpu_facts() == {"driver": "580.65.06", "devices": [device]}


def test_facts_from_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU, or all of a lost one, does not answer is None; the others keep theirs."""
    answers = {
        "nvmlDeviceGetEnforcedPowerLimit": 400_000,
        "nvmlDeviceGetMigMode": [1, 1],
        "nvmlDeviceGetApplicationsClock": lambda kind: {0: 1410, 2: 1593}[kind],
    }
    first, second = FakeGpu(uuid="GPU-0", answers=answers), FakeGpu(uuid="GPU-1")
    third = FakeGpu(uuid="GPU-2", answers={"nvmlDeviceGetMemoryInfo": None})
    assert known(monkeypatch, first, second, third, nvmlDeviceGetCount=4) == [
        ("NVIDIA H200", "GPU-0", 140 * GIB, 400.0, [1410, 1593], None, True),
        ("NVIDIA H200", "GPU-1", 140 * GIB, None, None, None, None),
        ("NVIDIA H200", "GPU-2", None, None, None, None, None),
        (None,) * 7,
    ]


@pytest.mark.parametrize(
    ("clocks", "utilization", "expected"),
    [
        ([345], 0, 0),
        ([990], 0, 0),
        ([1200, 1200], 0, 1200),
        ([1700, 1300], 0, None),
        ([1980], 0, None),
        ([1200], 5, None),
        ([], 0, None),
    ],
    ids=["lowered", "half", "locked", "still falling", "highest", "at work", "not told"],
)
def test_a_locked_clock_is_that_of_an_idle_gpu(
    monkeypatch: pytest.MonkeyPatch, clocks: list[int], utilization: int, expected: int | None
) -> None:
    """An idle GPU lowers its clock unless it is locked; one at work, or at its highest, may not."""
    told = iter(clocks)

    def clock(kind: int) -> int:
        for one in told:
            return one
        raise NoAnswerError

    answers = {
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=utilization),
        "nvmlDeviceGetMaxClockInfo": lambda kind: 1980,
        "nvmlDeviceGetClockInfo": clock,
    }
    assert known(monkeypatch, FakeGpu(answers=answers))[0][5] == expected
