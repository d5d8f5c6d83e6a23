"""Hardware facts: GPUs, processor and memory.

CUDA is never initialised: the process could not fork any more, and CUDA's memory would be part of
every measurement. NVML (``pynvml``, if installed) and the driver's files under ``/proc`` do
without.
"""

from __future__ import annotations

import os
import re
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from time import sleep
from typing import Any, Final

from gpubench_plugin.core.records import Json
from gpubench_plugin.environment import nvml
from gpubench_plugin.environment.devices import cpu_model, text_of

DRIVER_FILES: Final = Path("/proc/driver/nvidia")

_MILLIWATTS_PER_WATT: Final = 1000

# Seconds between two readings of a clock that may still be falling after work, once for all GPUs,
# and only where one looks locked.
_FALLING_S: Final = 1.0


def gpu_facts() -> Json | None:
    """Driver version and constant facts of each GPU; None without a driver.

    Facts: name, UUID, memory, enforced power limit in watts, application clocks in MHz (graphics,
    memory; set by ``nvidia-smi -ac``), locked graphics clock in MHz and MIG mode; unknown ones are
    None. All GPUs count, whatever ``CUDA_VISIBLE_DEVICES`` says.

    NVML can lock clocks (``nvidia-smi -lgc``) but not read the locked range, so an idle GPU's
    clock is judged: 0 if the GPU lowers it to half of the maximum or less, the clock if it stays
    above, and None at the maximum, where it may have worked just now, or while the GPU works.
    """
    return _from_nvml() or _from_proc()


def _from_nvml() -> Json | None:
    with nvml.opened() as library:
        handles = nvml.handles(library)
        if handles is None:
            return None
        return {
            "driver": nvml.answer(library, "nvmlSystemGetDriverVersion"),
            "devices": [
                {**_from_handle(library, handle), "locked_clock_mhz": clock}
                for handle, clock in zip(handles, _locked_clocks_mhz(library, handles), strict=True)
            ],
        }


def _from_handle(library: Any, handle: Any) -> Json:
    """Facts of one GPU; those that it does not report are None, and all of one that is lost."""

    def answer(function: str, *arguments: object) -> Any:
        return nvml.answer(library, function, handle, *arguments)

    memory = answer("nvmlDeviceGetMemoryInfo")
    power_limit = answer("nvmlDeviceGetEnforcedPowerLimit")
    clocks = [
        answer("nvmlDeviceGetApplicationsClock", kind)
        for kind in (nvml.GRAPHICS_CLOCK, nvml.MEMORY_CLOCK)
    ]
    mig_modes = nvml.mig_modes(library, handle)
    return {
        "name": answer("nvmlDeviceGetName"),
        "uuid": answer("nvmlDeviceGetUUID"),
        "memory_bytes": memory and int(memory.total),
        "power_limit_w": power_limit and power_limit / _MILLIWATTS_PER_WATT,
        "applications_clocks_mhz": None if None in clocks else [int(clock) for clock in clocks],
        "mig": mig_modes and mig_modes[0],
    }


def _locked_clocks_mhz(library: Any, handles: Sequence[Any]) -> list[int | None]:
    """Of each GPU its idle clock if that is locked, 0 if it is not, None if that is unknown."""
    clocks = [_idle_clock_mhz(library, handle) for handle in handles]
    if any(clocks):
        sleep(_FALLING_S)
    return [
        clock if not clock or _idle_clock_mhz(library, handle) == clock else None
        for clock, handle in zip(clocks, handles, strict=True)
    ]


def _idle_clock_mhz(library: Any, handle: Any) -> int | None:
    kind = nvml.GRAPHICS_CLOCK
    return held_clock_mhz(
        nvml.answer(library, "nvmlDeviceGetClockInfo", handle, kind),
        highest=nvml.answer(library, "nvmlDeviceGetMaxClockInfo", handle, kind),
        utilization=nvml.answer(library, "nvmlDeviceGetUtilizationRates", handle),
    )


def held_clock_mhz(clock: int | None, *, highest: int | None, utilization: Any) -> int | None:
    """Clock of an idle GPU that has not lowered it, 0 of one that has; None at work or at most.

    The arguments are NVML's answers, None where it has none.
    """
    if utilization is None or utilization.gpu or clock is None or not highest or clock >= highest:
        return None
    return 0 if clock <= highest / 2 else int(clock)


def _from_proc() -> Json | None:
    """Facts from ``/proc``: ``version`` and ``gpus/*/information`` (name and UUID only)."""
    version = text_of(DRIVER_FILES / "version")
    if not version:
        return None
    number = re.search(r"Kernel Module[^\n]*?\s(\d+(\.\d+)+)\s", version)
    unknown = dict.fromkeys(
        ("memory_bytes", "power_limit_w", "applications_clocks_mhz", "locked_clock_mhz", "mig")
    )
    return {
        "driver": number and number[1],
        "devices": [
            {"name": _field(text, "Model"), "uuid": _field(text, "GPU UUID"), **unknown}
            for text in map(text_of, sorted((DRIVER_FILES / "gpus").glob("*/information")))
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


def cpu_facts(*, quota_file: Path = QUOTA_FILE, cpu_folder: Path = CPU_FOLDER) -> Json:
    """CPU model, core counts, quota, and frequency governor; unknown facts are None.

    `quota_cores` is a container's share, which no core count shows; `governor` has those of all
    usable cores, sorted; `boost` tells whether turbo clocks are allowed.
    """
    import psutil

    return {
        "model": cpu_model(),
        "physical_cores": psutil.cpu_count(logical=False),
        "logical_cores": psutil.cpu_count(),
        "usable_cores": len(usable_cores()),
        "quota_cores": _quota(text_of(quota_file)),
        "governor": _governor(cpu_folder),
        "boost": _boost(cpu_folder),
    }


def _governor(folder: Path) -> str | None:
    files = (folder / f"cpu{core}" / "cpufreq" / "scaling_governor" for core in usable_cores())
    return " ".join(sorted({text_of(file).strip() for file in files} - {""})) or None


def _boost(folder: Path) -> bool | None:
    """Turbo state from the kernel's switch, or the inverse of Intel's driver switch."""
    for file, enabled_value in (("cpufreq/boost", "1"), ("intel_pstate/no_turbo", "0")):
        if (switch := text_of(folder / file).strip()) in {"0", "1"}:
            return switch == enabled_value
    return None


def usable_cores() -> frozenset[int]:
    """Cores that this process may run on; all where the system does not tell (macOS)."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def largest_resident_bytes() -> int:
    """Largest resident size of this process; getrusage(2) reports kibibytes, on macOS bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _quota(text: str) -> float | None:
    quota, _, period = text.strip().partition(" ")
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() else None
