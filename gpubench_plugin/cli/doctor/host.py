"""Checks of processors, memory and disks: their clocks, who else works on them, what is left."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

from gpubench_plugin.cli.doctor.machine import Fact, Machine, Unknown
from gpubench_plugin.core.format import byte_size, counted
from gpubench_plugin.environment.hardware import cpu_facts

# Of the usable cores' time, used by others: above what an idle machine's services take.
_BUSY_SHARE: Final = 0.05
# What NCCL asks a container to have, see its troubleshooting page on shared memory:
# https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html
_SHARED_MEMORY_BYTES: Final = 2**30
# A run takes some MB, compiled code and checkpoints take more.
_DISK_BYTES: Final = 2**30
_NOT_TOLD: Final = "the kernel does not tell, as in many virtual machines"


def governor(machine: Machine) -> Fact:
    """What the kernel chooses frequencies by.

    Source: https://docs.kernel.org/admin-guide/pm/cpufreq.html
    """
    names = cpu_facts(cpu_folder=machine.cpu_folder)["governor"]
    if names is None:
        raise Unknown(_NOT_TOLD)
    is_fast = names == "performance"
    return names, "" if is_fast else "sudo cpupower frequency-set --governor performance"


def turbo(machine: Machine) -> Fact:
    """Clocks above the nominal one, which depend on heat and on how many cores work."""
    boost = cpu_facts(cpu_folder=machine.cpu_folder)["boost"]
    if boost is None:
        raise Unknown(_NOT_TOLD)
    if not boost:
        return "off", ""
    is_intel = (machine.cpu_folder / "intel_pstate" / "no_turbo").exists()
    off, switch = ("1", "intel_pstate/no_turbo") if is_intel else ("0", "cpufreq/boost")
    return (
        "on: the clock depends on heat and on the other cores",
        f"echo {off} | sudo tee /sys/devices/system/cpu/{switch}",
    )


def load(machine: Machine) -> Fact:
    """Work of others on the cores of this process, while it sleeps."""
    activity = machine.activity
    value = f"{activity.busy:.0%} of {counted(len(machine.cores), 'core')} in use"
    if activity.busy <= _BUSY_SHARE:
        return value, ""
    names = ", ".join(activity.busiest)
    advice = "wait for it, end it, or move it to other cores: taskset"
    return f"{value}{names and ': '}{names}", advice


def hyperthreads(machine: Machine) -> Fact:
    """Usable cores that share the units of a physical one, with each other or with the rest."""
    siblings = {
        core: _numbers(machine.cpu_folder / f"cpu{core}/topology/thread_siblings_list")
        for core in sorted(machine.cores)
    }
    if all(len(group) == 1 for group in siblings.values()):
        return "each core has one thread", ""
    physical = {min(group) for group in siblings.values()}
    threads = counted(len(siblings), "usable thread")
    value = f"{threads} of {counted(len(physical), 'physical core')}"
    if outside := sorted(set().union(*siblings.values()) - machine.cores):
        value += "; others may use " + ", ".join(map(str, outside))
    firsts = [core for core, group in siblings.items() if core == min(group & machine.cores)]
    return value, (
        f"measure on a thread of each core: taskset -c {','.join(map(str, firsts))} pytest …, with "
        "nothing on the others"
    )


def _numbers(file: Path) -> set[int]:
    """Numbers of a list of the kernel's: ``0-2,8``."""
    numbers: set[int] = set()
    for part in file.read_text("utf-8").strip().split(","):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def cpu_quota(machine: Machine) -> Fact:
    """A container's share of the processors: work beyond it is suspended for the period's rest."""
    quota = min(filter(None, _quotas(machine)), default=None)
    if quota is None:
        return "none", ""
    value = f"{quota:.3g} of {counted(len(machine.cores), 'usable core')}"
    is_whole = quota >= len(machine.cores)  # which cannot use it up
    advice = "give the container whole cores instead: --cpuset-cpus, or a static policy"
    return value, "" if is_whole else advice


def _quotas(machine: Machine) -> Iterator[float | None]:
    """Quotas in cores of this process' control groups, from its own up to the root's."""
    root = machine.root / "sys/fs/cgroup"
    group = re.search(r"^0::/(.*)$", machine.text("proc/self/cgroup"), re.MULTILINE)
    own = root / (group[1] if group else "")
    for folder in (own, *own.parents):
        if folder.is_relative_to(root):
            yield cpu_facts(quota_file=folder / "cpu.max")["quota_cores"]


def stolen_time(machine: Machine) -> Fact:
    """Time that a virtual machine's host gave to others."""
    stolen = machine.activity.stolen
    if not stolen:
        return "none", ""
    return f"{stolen:.1%} of the time", "use a machine with cores of its own"


def swap(_: Machine) -> Fact:
    """Memory on a disk, of which every access waits."""
    with warnings.catch_warnings(action="ignore"):  # of other numbers that a kernel may not have
        used = psutil.swap_memory().used
    if not used:
        return "none in use", ""
    return f"{byte_size(used, digits=3)} in use", "free memory, then sudo swapoff --all"


def huge_pages(machine: Machine) -> Fact:
    """Whether an allocation may wait until memory is compacted for a huge page.

    Source: https://docs.kernel.org/admin-guide/mm/transhuge.html
    """
    folder = "sys/kernel/mm/transparent_hugepage"
    enabled, defrag = (
        machine.text(f"{folder}/{name}").partition("[")[2].partition("]")[0]
        for name in ("enabled", "defrag")
    )
    waits = enabled != "never" and defrag == "always"
    value = f"{enabled}, defrag {defrag}{': allocations may wait for compaction' * waits}"
    return value, f"echo madvise | sudo tee /{folder}/defrag" * waits


def shared_memory(machine: Machine) -> Fact:
    """``/dev/shm``, through which workers hand on batches and NCCL's ranks their data."""
    usage = shutil.disk_usage(machine.root / "dev/shm")
    value = f"{byte_size(usage.free, digits=3)} of {byte_size(usage.total, digits=3)} free"
    advice = "start the container with --shm-size=1g or --ipc=host, or delete files"
    return value, advice * (usage.free < _SHARED_MEMORY_BYTES)


def disk_results(machine: Machine) -> Fact:
    """Disk of the results."""
    return _disk(machine.results, "--results-dir")


def disk_temporary(_: Machine) -> Fact:
    """Disk of temporary files, compiled code among them."""
    return _disk(Path(tempfile.gettempdir()), "TMPDIR")


def _disk(folder: Path, option: str) -> Fact:
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        return f"{existing} is no folder to write in", f"choose another folder with {option}"
    free = shutil.disk_usage(existing).free
    advice = f"delete files, or choose another folder with {option}"
    return f"{byte_size(free, digits=3)} free in {folder}", advice * (free < _DISK_BYTES)
