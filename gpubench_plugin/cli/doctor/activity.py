"""What processors and processes do for a while, by the kernel's counters.

Source: https://docs.kernel.org/filesystems/proc.html
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

_IDLE_FIELDS = (3, 4)  # idle and iowait
_STEAL_FIELD = 7
_FIELDS = 8  # the guests' time of the later ones is in user and nice already


@dataclass(frozen=True, kw_only=True)
class CoreTime:
    """Ticks of a core: all, those in which it worked, and those stolen by the host."""

    total: int
    busy: int
    stolen: int

    def since(self, earlier: CoreTime) -> CoreTime:
        """What was added."""
        return CoreTime(
            total=self.total - earlier.total,
            busy=self.busy - earlier.busy,
            stolen=self.stolen - earlier.stolen,
        )


@dataclass(frozen=True, kw_only=True)
class ProcessTime:
    """A process: its name, the core it ran on last, and its ticks."""

    name: str
    core: int
    ticks: int


@dataclass(frozen=True, kw_only=True)
class Activity:
    """What was added meanwhile: by core, and by id of the other processes that worked."""

    cores: Mapping[int, CoreTime]
    processes: Mapping[int, ProcessTime]

    @classmethod
    def sampled(cls, proc: Path, wait: Callable[[], object]) -> Self:
        """Read the counters before and after `wait`; raises OSError."""
        cores, processes = core_times(proc), process_times(proc)
        wait()
        later_cores, later_processes = core_times(proc), process_times(proc)
        worked = {
            pid: now.ticks - (processes[pid].ticks if pid in processes else 0)
            for pid, now in later_processes.items()
        }
        return cls(
            cores={n: time.since(cores[n]) for n, time in later_cores.items() if n in cores},
            processes={
                pid: replace(later_processes[pid], ticks=ticks)
                for pid, ticks in worked.items()
                if ticks > 0
            },
        )


def core_times(proc: Path) -> dict[int, CoreTime]:
    """Times by core from ``/proc/stat``."""
    times = {}
    for line in (proc / "stat").read_text(encoding="utf-8").splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu":
            ticks = [int(field) for field in fields[:_FIELDS]]
            idle = sum(ticks[i] for i in _IDLE_FIELDS)
            stolen = ticks[_STEAL_FIELD] if len(ticks) == _FIELDS else 0
            busy = sum(ticks) - idle - stolen
            times[int(name[3:])] = CoreTime(total=sum(ticks), busy=busy, stolen=stolen)
    return times


def process_times(proc: Path) -> dict[int, ProcessTime]:
    """Times by process id, without this process; one that ends meanwhile is left out."""
    times = {}
    for file in proc.glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            head, _, tail = file.read_text(encoding="utf-8", errors="replace").rpartition(")")
            fields = tail.split()  # from the third of proc_pid_stat(5) on
            times[int(file.parent.name)] = ProcessTime(
                name=head.partition("(")[2],
                core=int(fields[36]),
                ticks=int(fields[11]) + int(fields[12]),
            )
    times.pop(os.getpid(), None)
    return times
