"""Checks of memory and disks."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from gpubench_plugin.cli.doctor.finding import Finding, ok, warning
from gpubench_plugin.cli.doctor.machine import Machine
from gpubench_plugin.core.words import byte_size

_SHARED_MEMORY: Final = 2**30
"""What NCCL asks a container to have:
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#shared-memory"""

_DISK: Final = 2**30
"""Not measured: a run takes some MB, compiled code and checkpoints take more."""


def swap(machine: Machine) -> Finding:
    """Memory on a disk, of which every access waits."""
    sizes = {
        name: int(size) * 1024
        for name, size in re.findall(r"^(Swap\w+):\s*(\d+) kB", machine.text("proc/meminfo"), re.M)
    }
    used = sizes["SwapTotal"] - sizes["SwapFree"]
    if not used:
        return ok("none in use")
    return warning(f"{byte_size(used, digits=3)} in use", "free memory, then sudo swapoff --all")


def huge_pages(machine: Machine) -> Finding:
    """Whether an allocation may wait until memory is compacted for a huge page.

    Source: https://docs.kernel.org/admin-guide/mm/transhuge.html
    """
    folder = "sys/kernel/mm/transparent_hugepage"
    enabled, defrag = (
        machine.text(f"{folder}/{name}").partition("[")[2].partition("]")[0]
        for name in ("enabled", "defrag")
    )
    if enabled != "never" and defrag == "always":
        return warning(
            f"{enabled}, defrag {defrag}: allocations may wait for compaction",
            f"echo madvise | sudo tee /{folder}/defrag",
        )
    return ok(f"{enabled}, defrag {defrag}")


def shared_memory(machine: Machine) -> Finding:
    """``/dev/shm``, through which workers hand on batches and NCCL's ranks their data."""
    usage = machine.disk_usage(machine.root / "dev/shm")
    value = f"{byte_size(usage.free, digits=3)} of {byte_size(usage.total, digits=3)} free"
    if usage.free >= _SHARED_MEMORY:
        return ok(value)
    return warning(value, "start the container with --shm-size=1g or --ipc=host, or delete files")


def disk_results(machine: Machine) -> Finding:
    """Disk of the results."""
    return _disk(machine, machine.results, "--results-dir")


def disk_temporary(machine: Machine) -> Finding:
    """Disk of temporary files, compiled code among them."""
    if machine.temporary is None:
        return warning("no folder is writable", "choose a folder with TMPDIR")
    return _disk(machine, machine.temporary, "TMPDIR")


def _disk(machine: Machine, folder: Path, option: str) -> Finding:
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        kind = "cannot be written to" if existing.is_dir() else "is no folder"
        return warning(f"{existing} {kind}", f"choose another folder with {option}")
    free = machine.disk_usage(existing).free
    value = f"{byte_size(free, digits=3)} free in {folder}"
    if free >= _DISK:
        return ok(value)
    return warning(value, f"delete files, or choose another folder with {option}")
