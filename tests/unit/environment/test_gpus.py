"""Tests of the facts about GPUs, with the driver's files and a stand-in for pynvml."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.environment import hardware

if TYPE_CHECKING:
    from collections.abc import Iterator
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
PYNVML = """
import pathlib
NVML_CLOCK_GRAPHICS, NVML_CLOCK_MEM = 0, 2
class NVMLError(Exception): pass
class Memory: total = 80 * 2**30
def nvmlInit(): pass
def nvmlShutdown(): pathlib.Path({log!r}).write_text("shut down")
def nvmlSystemGetDriverVersion(): return b"470.57.02"
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetName(handle): return "NVIDIA A100"
def nvmlDeviceGetUUID(handle): return f"GPU-{{handle}}"
def nvmlDeviceGetMemoryInfo(handle): return Memory
def nvmlDeviceGetEnforcedPowerLimit(handle): return 400_000
def nvmlDeviceGetMigMode(handle):
    if handle: raise NVMLError("not supported")
    return [1, 1]
def nvmlDeviceGetApplicationsClock(handle, kind):
    if handle: raise NVMLError("not supported")
    return {{0: 1410, 2: 1593}}[kind]
"""


@pytest.fixture(autouse=True)
def no_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Neither this machine's driver nor its pynvml takes part; the folder of driver files."""
    monkeypatch.setattr(hardware, "DRIVER_FILES", tmp_path / "nvidia")
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    (tmp_path / "pynvml.py").write_text(
        "class NVMLError(Exception): pass\ndef nvmlInit(): raise NVMLError('no driver')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "nvidia"
    sys.modules.pop("pynvml", None)


def test_machine_without_gpu() -> None:
    """Without a driver there are no facts."""
    assert hardware.gpu_facts() is None


@pytest.mark.parametrize("kind", ["x86_64 Kernel Module", "Open Kernel Module for x86_64"])
def test_facts_from_the_drivers_files(no_driver: Path, kind: str) -> None:
    """Where NVML does not answer, the driver's files tell name and UUID."""
    (no_driver / "gpus" / "0000:01:00.0").mkdir(parents=True)
    (no_driver / "version").write_text(VERSION.format(kind=kind))
    (no_driver / "gpus" / "0000:01:00.0" / "information").write_text(INFORMATION)
    assert hardware.gpu_facts() == {
        "driver": "580.65.06",
        "devices": [
            {
                "name": "NVIDIA H200",
                "uuid": "GPU-01234567-89ab-cdef-0123-456789abcdef",
                "memory_bytes": None,
                "power_limit_w": None,
                "applications_clocks_mhz": None,
                "locked_clock_mhz": None,
                "mig": None,
            }
        ],
    }


def test_facts_from_nvml(tmp_path: Path) -> None:
    """NVML tells driver and devices, also in bytes; what a GPU does not know is None."""
    log = tmp_path / "log"
    (tmp_path / "pynvml.py").write_text(PYNVML.format(log=str(log)))
    assert hardware.gpu_facts() == {
        "driver": "470.57.02",
        "devices": [
            {
                "name": "NVIDIA A100",
                "uuid": f"GPU-{number}",
                "memory_bytes": 80 * 2**30,
                "power_limit_w": 400.0,
                "applications_clocks_mhz": clocks,
                "locked_clock_mhz": None,
                "mig": mig,
            }
            for number, (mig, clocks) in enumerate([(True, [1410, 1593]), (None, None)])
        ],
    }
    assert log.read_text() == "shut down"


def test_a_gpu_that_answers_less_is_known_by_the_rest(tmp_path: Path) -> None:
    """No memory, a lost device, a function that the library dropped: the others keep theirs."""
    source = PYNVML.format(log=str(tmp_path / "log")).replace("    if handle: raise", "    raise")
    source += """
def nvmlDeviceGetCount(): return 3
def nvmlDeviceGetHandleByIndex(index):
    if index == 2: raise NVMLError("GPU is lost")
    return index
def nvmlDeviceGetMemoryInfo(handle):
    if handle == 0: raise NVMLError("not supported")
    return Memory
def nvmlDeviceGetUtilizationRates(handle):
    assert handle is not None
    raise NVMLError("not supported")
del nvmlDeviceGetEnforcedPowerLimit
"""
    (tmp_path / "pynvml.py").write_text(source)
    facts = hardware.gpu_facts()
    assert facts is not None
    kept = [(gpu["name"], gpu["uuid"], gpu["memory_bytes"]) for gpu in facts["devices"]]
    assert kept == [
        ("NVIDIA A100", "GPU-0", None),
        ("NVIDIA A100", "GPU-1", 80 * 2**30),
        (None, None, None),
    ]
    assert {gpu["power_limit_w"] for gpu in facts["devices"]} == {None}


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
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    clocks: list[int],
    utilization: int,
    expected: int | None,
) -> None:
    """An idle GPU lowers its clock unless it is locked; one at work, or at its highest, may not."""
    source = PYNVML.format(log=str(tmp_path / "log"))
    source += f"""
clocks = iter({clocks})
class Utilization: gpu = {utilization}
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetUtilizationRates(handle): return Utilization
def nvmlDeviceGetMaxClockInfo(handle, kind): return 1980
def nvmlDeviceGetClockInfo(handle, kind):
    for clock in clocks:
        return clock
    raise NVMLError("not supported")
"""
    (tmp_path / "pynvml.py").write_text(source)
    monkeypatch.setattr(hardware, "_FALLING_S", 0.0)
    facts = hardware.gpu_facts()
    assert facts is not None
    assert [gpu["locked_clock_mhz"] for gpu in facts["devices"]] == [expected]
