"""Checks of the processors: their clocks, and who else works on them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from gpubench_plugin.cli.doctor.finding import Finding, ok, unknown, warning
from gpubench_plugin.cli.doctor.machine import Machine
from gpubench_plugin.core.words import counted
from gpubench_plugin.environment.hardware import cpu_facts

_BUSY_SHARE: Final = 0.05
"""Of the usable cores' time, used by others. Not measured: above what an idle machine's services
take."""


def governor(machine: Machine) -> Finding:
    """What the kernel chooses frequencies by.

    Source: https://docs.kernel.org/admin-guide/pm/cpufreq.html
    """
    names = cpu_facts(cpu_folder=machine.root / "sys/devices/system/cpu")["governor"]
    if names is None:
        return unknown("the kernel does not tell, as in many virtual machines")
    if names == "performance":
        return ok(names)
    return warning(names, "sudo cpupower frequency-set --governor performance")


def turbo(machine: Machine) -> Finding:
    """Clocks above the nominal one, which depend on heat and on how many cores work."""
    folder = machine.root / "sys/devices/system/cpu"
    boost = cpu_facts(cpu_folder=folder)["boost"]
    if boost is None:
        return unknown("the kernel does not tell, as in many virtual machines")
    if not boost:
        return ok("off")
    is_intel = (folder / "intel_pstate" / "no_turbo").exists()
    switch = (
        "1 | sudo tee {}/intel_pstate/no_turbo" if is_intel else "0 | sudo tee {}/cpufreq/boost"
    )
    advice = switch.format("/sys/devices/system/cpu")
    return warning("on: the clock depends on heat and on the other cores", f"echo {advice}")


def load(machine: Machine) -> Finding:
    """Work of others on the cores of this process, while it sleeps."""
    cores = [time for core, time in machine.activity.cores.items() if core in machine.cores]
    total = sum(time.total for time in cores)
    if not total:
        return unknown("the kernel counts no time of these cores")
    share = sum(time.busy for time in cores) / total
    value = f"{share:.0%} of {counted(len(machine.cores), 'core')} in use"
    if share <= _BUSY_SHARE:
        return ok(value)
    ticks_per_core = total / len(cores)
    busiest = sorted(
        (p.ticks, pid, p.name)
        for pid, p in machine.activity.processes.items()
        if p.core in machine.cores
    )[:-4:-1]
    names = ", ".join(f"{name} ({pid}) {t / ticks_per_core:.0%}" for t, pid, name in busiest)
    return warning(
        f"{value}{names and ': '}{names}", "wait for it, end it, or move it to other cores: taskset"
    )


def hyperthreads(machine: Machine) -> Finding:
    """Usable cores that share the units of a physical one, with each other or with the rest."""
    folder = machine.root / "sys/devices/system/cpu"
    siblings = {
        core: numbers((folder / f"cpu{core}/topology/thread_siblings_list").read_text("utf-8"))
        for core in sorted(machine.cores)
    }
    physical = {min(group) for group in siblings.values()}
    if len(physical) == len(siblings) and all(len(group) == 1 for group in siblings.values()):
        return ok("each core has one thread")
    value = (
        f"{counted(len(siblings), 'usable thread')} of {counted(len(physical), 'physical core')}"
    )
    firsts = [core for core, group in siblings.items() if core == min(group & machine.cores)]
    outside = sorted(set().union(*siblings.values()) - machine.cores)
    if outside:
        value += "; others may use " + ", ".join(map(str, outside))
    return warning(
        value,
        f"measure on a thread of each core: taskset -c {','.join(map(str, firsts))} pytest …, with "
        "nothing on the others",
    )


def numbers(text: str) -> set[int]:
    """Numbers of a list of the kernel's: ``0-2,8``."""
    listed: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        listed.update(range(int(first), int(last or first) + 1))
    return listed


def cpu_quota(machine: Machine) -> Finding:
    """A container's share of the processors: work beyond it is suspended for the period's rest."""
    limits = [limit for limit in _quotas(machine) if limit is not None]
    if not limits:
        return ok("none")
    value = f"{min(limits):.3g} of {counted(len(machine.cores), 'usable core')}"
    if min(limits) >= len(machine.cores):  # which cannot use it up
        return ok(value)
    return warning(
        value, "give the container whole cores instead: --cpuset-cpus, or a static policy"
    )


def _quotas(machine: Machine) -> list[float | None]:
    """Quotas in cores of this process' control groups, from its own up to the root's."""
    base, groups = machine.root / "sys/fs/cgroup", machine.text("proc/self/cgroup")
    group = re.search(r"^0::/(.*)$", groups, re.MULTILINE)
    folders = _folders(base, group[1] if group else "")
    quotas = [cpu_facts(quota_file=folder / "cpu.max")["quota_cores"] for folder in folders]
    older = re.search(
        r"^\d+:(?:[^:\n]*,)?cpu(?:,[^:\n]*)?:/(.*)$", groups, re.MULTILINE
    )  # version 1
    # A container's own group may be the root of what it sees, under another name outside.
    for folder in _folders(base / "cpu", older[1] if older else ""):
        if (folder / "cpu.cfs_quota_us").exists():
            quota, period = (
                int((folder / f"cpu.cfs_{name}_us").read_text("utf-8"))
                for name in ("quota", "period")
            )
            quotas.append(quota / period if quota > 0 else None)
    return quotas


def _folders(base: Path, group: str) -> list[Path]:
    """Folders of the `group` below `base` and of those around it."""
    return [f for f in (base / group, *(base / group).parents) if f == base or base in f.parents]


def stolen_time(machine: Machine) -> Finding:
    """Time that a virtual machine's host gave to others."""
    cores = [time for core, time in machine.activity.cores.items() if core in machine.cores]
    total = sum(time.total for time in cores)
    if not total:
        return unknown("the kernel counts no time of these cores")
    is_virtual = re.search(
        r"^flags\s*:.*\bhypervisor\b", machine.text("proc/cpuinfo"), re.MULTILINE
    )
    where = "a virtual machine" if is_virtual else "no virtual machine"
    stolen = sum(time.stolen for time in cores) / total
    if not stolen:
        return ok(f"none; {where}")
    return warning(f"{stolen:.1%} of the time; {where}", "use a machine with cores of its own")
