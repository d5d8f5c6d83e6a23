"""The hardware of this machine: its GPUs as their driver describes them, processor and memory.

CUDA is never initialised: a process that did could not fork any more, and CUDA's memory would be
part of every measurement. NVML (through ``pynvml``, if it is installed) and the driver's files
under ``/proc`` do not need it.
"""

from __future__ import annotations

import importlib.util
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.environment.devices import CPU_FILE, cpu_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.records import Json


DRIVER_FILES: Final = Path("/proc/driver/nvidia")

_MILLIWATTS_PER_WATT: Final = 1000


def gpu_facts() -> Json | None:
    """The driver's version and each GPU's facts; None where there is no driver.

    They are name, UUID, memory, the enforced power limit in watts, and whether the GPU is in MIG
    mode, that is, divided into smaller ones.

    All GPUs of the machine are meant, whatever ``CUDA_VISIBLE_DEVICES`` says. A fact that is not
    known is None. Nothing volatile (clocks, temperature, free memory) is among them.
    """
    return _from_nvml() or _from_files(DRIVER_FILES)


def _from_nvml() -> Json | None:
    if importlib.util.find_spec("pynvml") is None:
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
        ]
        return {
            "driver": _text(pynvml.nvmlSystemGetDriverVersion()),
            "devices": [_from_handle(pynvml, handle) for handle in handles],
        }
    except pynvml.NVMLError:
        return None
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _from_handle(nvml: Any, handle: Any) -> Json:
    return {
        "name": _text(nvml.nvmlDeviceGetName(handle)),
        "uuid": _text(nvml.nvmlDeviceGetUUID(handle)),
        "memory_bytes": int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        "power_limit_w": _told(
            nvml, lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / _MILLIWATTS_PER_WATT
        ),
        "mig": _told(nvml, lambda: bool(nvml.nvmlDeviceGetMigMode(handle)[0])),
    }


def _told(nvml: Any, ask: Callable[[], Any]) -> Any:
    """What `ask` returns, or None where this kind of GPU does not know it."""
    try:
        return ask()
    except nvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    """Old versions of pynvml give bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _from_files(folder: Path) -> Json | None:
    """The same from ``version`` and ``gpus/*/information``, which tell name and UUID only."""
    try:
        version = (folder / "version").read_text(encoding="utf-8", errors="replace")
        files = sorted((folder / "gpus").glob("*/information"))
        described = [file.read_text(encoding="utf-8", errors="replace") for file in files]
    except OSError:
        return None
    number = re.search(r"Kernel Module[^\n]*?\s(\d+(\.\d+)+)\s", version)
    return {
        "driver": number and number[1],
        "devices": [
            {
                "name": _field(text, "Model"),
                "uuid": _field(text, "GPU UUID"),
                "memory_bytes": None,
                "power_limit_w": None,
                "mig": None,
            }
            for text in described
        ],
    }


def _field(text: str, name: str) -> str | None:
    found = re.search(rf"^{name}:\s*(\S.*?)\s*$", text, re.MULTILINE)
    return found and found[1]


QUOTA_FILE: Final = Path("/sys/fs/cgroup/cpu.max")
"""Of cgroup v2: quota and period in microseconds, or ``max`` for no quota."""


def cpu_facts(cpu_file: Path = CPU_FILE, quota_file: Path = QUOTA_FILE) -> Json:
    """Model, cores and how many of them this process may use; what is not known is None.

    `quota_cores` is the share a container may use, which no count of cores shows.
    """
    described = _read(cpu_file)
    cores = set(
        re.findall(r"^physical id\s*:\s*(\d+)$.*?^core id\s*:\s*(\d+)$", described, re.M | re.S)
    )
    return {
        "model": cpu_model(cpu_file),
        "physical_cores": len(cores) or None,
        "logical_cores": os.cpu_count(),
        "usable_cores": _usable_cores(),
        "quota_cores": _quota(_read(quota_file)),
    }


def memory_bytes() -> int | None:
    """The machine's main memory, if the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _usable_cores() -> int | None:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else None


def _quota(text: str) -> float | None:
    quota, _, period = text.strip().partition(" ")
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
