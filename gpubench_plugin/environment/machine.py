"""Processor and memory of this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpubench_plugin.environment.devices import CPU_FILE, cpu_model

if TYPE_CHECKING:
    from gpubench_plugin.records import Json

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
