"""Hardware facts: GPUs, processor and memory.

CUDA is never initialised: the process could not fork any more, and CUDA's memory would be part of
every measurement. NVML (``pynvml``, if installed) and the driver's files under ``/proc`` do
without.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from gpubench_plugin.environment.devices import CPU_FILE, cpu_model, text_of
from gpubench_plugin.records import Json

DRIVER_FILES: Final = Path("/proc/driver/nvidia")

_MILLIWATTS_PER_WATT: Final = 1000


def gpu_facts() -> Json | None:
    """Driver version and constant facts of each GPU; None without a driver.

    Facts: name, UUID, memory, enforced power limit in watts, application clocks in MHz (graphics,
    memory; set by ``nvidia-smi -ac``) and MIG mode; unknown ones are None. All GPUs count, whatever
    ``CUDA_VISIBLE_DEVICES`` says. NVML can lock clocks (``nvidia-smi -lgc``) but not read the
    locked range.
    """
    return _from_nvml() or _from_proc(DRIVER_FILES)


def _from_nvml() -> Json | None:
    if importlib.util.find_spec("pynvml") is None:
        return None
    import pynvml

    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        try:
            handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
            return {
                "driver": _text(pynvml.nvmlSystemGetDriverVersion()),
                "devices": [_from_handle(pynvml, handle) for handle in handles],
            }
        finally:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()
    return None


def _from_handle(nvml: Any, handle: Any) -> Json:
    return {
        "name": _text(nvml.nvmlDeviceGetName(handle)),
        "uuid": _text(nvml.nvmlDeviceGetUUID(handle)),
        "memory_bytes": int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        "power_limit_w": _or_none(
            nvml, lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / _MILLIWATTS_PER_WATT
        ),
        "applications_clocks_mhz": _or_none(nvml, lambda: _applications_clocks(nvml, handle)),
        "mig": _or_none(nvml, lambda: bool(nvml.nvmlDeviceGetMigMode(handle)[0])),
    }


def _applications_clocks(nvml: Any, handle: Any) -> list[int]:
    kinds = (nvml.NVML_CLOCK_GRAPHICS, nvml.NVML_CLOCK_MEM)
    return [int(nvml.nvmlDeviceGetApplicationsClock(handle, kind)) for kind in kinds]


def _or_none(nvml: Any, query: Callable[[], Any]) -> Any:
    """Call `query`; None if this GPU does not support the query."""
    try:
        return query()
    except nvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    """Decode text: old versions of pynvml return bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _from_proc(folder: Path) -> Json | None:
    """Facts from ``/proc``: ``version`` and ``gpus/*/information`` (name and UUID only)."""
    try:
        version = (folder / "version").read_text(encoding="utf-8", errors="replace")
        files = sorted((folder / "gpus").glob("*/information"))
        contents = [file.read_text(encoding="utf-8", errors="replace") for file in files]
    except OSError:
        return None
    number = re.search(r"Kernel Module[^\n]*?\s(\d+(\.\d+)+)\s", version)
    unknown = dict.fromkeys(("memory_bytes", "power_limit_w", "applications_clocks_mhz", "mig"))
    return {
        "driver": number and number[1],
        "devices": [
            {"name": _field(text, "Model"), "uuid": _field(text, "GPU UUID"), **unknown}
            for text in contents
        ],
    }


def _field(text: str, name: str) -> str | None:
    match = re.search(rf"^{name}:\s*(\S.*?)\s*$", text, re.MULTILINE)
    return match and match[1]


QUOTA_FILE: Final = Path("/sys/fs/cgroup/cpu.max")
"""CPU quota of cgroup v2: quota and period in microseconds, or ``max``."""

CPU_FOLDER: Final = Path("/sys/devices/system/cpu")
"""Governor and turbo switches; see https://docs.kernel.org/admin-guide/pm/cpufreq.html and
…/intel_pstate.html."""


def cpu_facts(
    cpu_file: Path = CPU_FILE, quota_file: Path = QUOTA_FILE, cpu_folder: Path = CPU_FOLDER
) -> Json:
    """CPU model, core counts, quota, and frequency governor; unknown facts are None.

    `quota_cores` is a container's share, which no core count shows; `governor` has those of all
    usable cores, sorted; `boost` tells whether turbo clocks are allowed.
    """
    cpuinfo = text_of(cpu_file)
    cores = set(
        re.findall(r"^physical id\s*:\s*(\d+)$.*?^core id\s*:\s*(\d+)$", cpuinfo, re.M | re.S)
    )
    return {
        "model": cpu_model(cpu_file),
        "physical_cores": len(cores) or None,
        "logical_cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "quota_cores": _quota(text_of(quota_file)),
        "governor": _governor(cpu_folder),
        "boost": _boost(cpu_folder),
    }


def _governor(folder: Path) -> str | None:
    files = (folder / f"cpu{core}" / "cpufreq" / "scaling_governor" for core in _affinity() or ())
    return " ".join(sorted({text_of(file).strip() for file in files} - {""})) or None


def _boost(folder: Path) -> bool | None:
    """Turbo state from the kernel's switch, or the inverse of Intel's driver switch."""
    for file, enabled_value in (("cpufreq/boost", "1"), ("intel_pstate/no_turbo", "0")):
        if (switch := text_of(folder / file).strip()) in {"0", "1"}:
            return switch == enabled_value
    return None


def memory_bytes() -> int | None:
    """Main memory of the machine, if known."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def usable_cores() -> int | None:
    """Number of cores this process may run on, if known."""
    cores = _affinity()
    return None if cores is None else len(cores)


def _affinity() -> set[int] | None:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None  # not on macOS


def _quota(text: str) -> float | None:
    quota, _, period = text.strip().partition(" ")
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() else None
