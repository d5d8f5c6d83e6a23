"""The GPUs of this host: a slot for each, or as many slots as are asked for."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from gpubench_plugin.config.settings import whole_number
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.format import counted
from gpubench_plugin.engines.base import FOLDER, OUTPUT, Capacity, Engine, JobStatus, Shard
from gpubench_plugin.environment import nvml
from gpubench_plugin.environment.cuda_devices import visible_indices
from gpubench_plugin.environment.hardware import usable_cores
from gpubench_plugin.environment.redaction import THREADS
from gpubench_plugin.system.child_process import Child
from gpubench_plugin.system.files import KernelLock

if TYPE_CHECKING:
    from gpubench_plugin.config.sections import EngineSection

_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_GRACE_S: Final = 8.0
"""From SIGTERM to SIGKILL, within the 10 s that a session has for its own end."""


@dataclass(frozen=True, kw_only=True)
class Slot:
    """What one shard has to itself: GPUs, by UUID, and cores."""

    name: str
    gpus: tuple[str, ...]
    cores: frozenset[int]

    @property
    def resources(self) -> tuple[str, ...]:
        """Names of what it occupies: its GPUs, on a host without any its cores."""
        return self.gpus or tuple(f"core-{core}" for core in sorted(self.cores))


@dataclass(kw_only=True)
class _Job:
    shard: Shard
    child: Child | None = None
    slot: Slot | None = None
    held: ExitStack = field(default_factory=ExitStack)
    code: int | None = None


class Local(Engine):
    """Shards as child processes, each in a slot: its GPUs, the cores near them, and their threads.

    One that is alone has the whole host. Sessions of others on the same devices are waited for.
    """

    poll_interval_s: ClassVar[float] = 0.1

    def __init__(self, target: str, section: EngineSection):
        super().__init__(target, section)
        if section.nodes > 1:
            raise UsageProblem(f"engine.nodes {section.nodes}: local is one node")
        gpus = _gpus()
        number = whole_number("--on=local", 1, target) if target else len(gpus) or 1
        if number > (most := len(gpus) or len(usable_cores())):
            noun = "GPU" if gpus else "core"
            raise UsageProblem(f"--on=local:{target}: this host has {counted(most, noun)}")
        self.slots = slots_of(gpus, usable_cores(), number)
        self._host = Slot(name="host", gpus=tuple(gpus), cores=usable_cores())
        self._jobs: dict[str, _Job] = {}

    def describe(self) -> Capacity:
        """The slots."""
        gpus, cores = len(self.slots[0].gpus), min(len(slot.cores) for slot in self.slots)
        each = " and ".join([counted(gpus, "GPU")] * bool(gpus) + [counted(cores, "core")])
        text = f"{counted(len(self.slots), 'slot')} of {each} on this host"
        return Capacity(slots=len(self.slots), hosts=1, text=text, gpus=bool(self._host.gpus))

    def submit(self, shards: Sequence[Shard]) -> list[str]:
        """Queue them; they start by `poll`."""
        names = [f"local-{secrets.token_hex(4)}" for _ in shards]
        self._jobs |= {name: _Job(shard=s) for name, s in zip(names, shards, strict=True)}
        return names

    def poll(self, jobs: Collection[str]) -> Mapping[str, JobStatus]:
        """Start what there is room for; how all stand."""
        for job in self._jobs.values():
            if job.child is not None and (code := job.child.code) is not None:
                self._end(job, code)
        blocked = self._start()
        known = {name: self._jobs[name] for name in jobs if name in self._jobs}
        return {name: self._status(job, blocked) for name, job in known.items()}

    def _status(self, job: _Job, blocked: str) -> JobStatus:
        if job.code is not None:
            return JobStatus(state="ended", code=job.code)
        if job.slot is None:
            return JobStatus(state="queued", reason=blocked)
        return JobStatus(state="running", node=job.slot.name)

    def _start(self) -> str:
        """Start queued shards in their order; why the first of the others waits, if for others."""
        for job in self._jobs.values():
            if job.child is not None or job.code is not None:
                continue
            busy = {r for j in self._jobs.values() if j.slot for r in j.slot.resources}
            choices = [self._host] if job.shard.is_alone else self.slots
            free = [slot for slot in choices if busy.isdisjoint(slot.resources)]
            if not free:
                continue
            if (locks := locks_on(free[0])) is None:
                return "another session measures on this host"
            self._run(job, free[0], locks)
        return ""

    def _run(self, job: _Job, slot: Slot, locks: ExitStack) -> None:
        own = {FOLDER: str(job.shard.folder), "GPUBENCH_SHARD_PARENT": str(os.getpid())}
        if slot.gpus:
            own[_VISIBLE] = ",".join(slot.gpus)
        if not job.shard.is_alone and len(self.slots) > 1:
            own.setdefault(THREADS, os.environ.get(THREADS) or str(len(slot.cores)))
        job.child = Child(
            job.shard.command(sys.executable),
            environ={**os.environ, **own},
            cwd=job.shard.cwd,
            output=job.shard.folder / OUTPUT,
        )
        locks.callback(job.child.end, 0)  # with what it has left
        job.slot, job.held = slot, locks
        with suppress(AttributeError, OSError):  # not on macOS; it has ended already
            os.sched_setaffinity(job.child.pid, slot.cores)

    def _end(self, job: _Job, code: int) -> None:
        job.held.close()
        job.child, job.slot, job.code = None, None, code

    def cancel(self, jobs: Collection[str]) -> None:
        """End them by SIGTERM, then by SIGKILL."""
        own = [self._jobs[name] for name in jobs if name in self._jobs]
        running = [(job, job.child) for job in own if job.child is not None]
        for _, child in running:
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGTERM)
        for job, child in running:
            self._end(job, child.end(_GRACE_S))
        for job in own:
            job.code = 0 if job.code is None else job.code

    def close(self) -> None:
        """End what still runs."""
        self.cancel([*self._jobs])


def slots_of(gpus: Mapping[str, frozenset[int]], cores: frozenset[int], number: int) -> list[Slot]:
    """So many slots: an equal share of the `gpus`, which have cores near them, and of the `cores`.

    A slot's cores are near its first GPU, and no other slot's as far as there are enough.
    """
    shares = [tuple([*gpus][at::number]) for at in range(number)]
    near = [(gpus[share[0]] & cores if share else cores) or cores for share in shares]
    slots = []
    for at, (share, own) in enumerate(zip(shares, near, strict=True)):
        part = sorted(own)[near[:at].count(own) :: near.count(own)]
        slots.append(Slot(name=f"slot {at + 1}", gpus=share, cores=frozenset(part or own)))
    return slots


def whole_host() -> Slot:
    """All GPUs and cores that this session may use."""
    return Slot(name="host", gpus=tuple(_gpus()), cores=usable_cores())


def _gpus() -> dict[str, frozenset[int]]:
    """UUIDs of the GPUs that this session may use, with the cores near each, if they are known."""
    with nvml.opened() as library:
        handles = nvml.handles(library) or []
        uuids = [nvml.answer(library, "nvmlDeviceGetUUID", handle) or "" for handle in handles]
        chosen = visible_indices(os.environ.get(_VISIBLE), uuids) or []
        words = (max(usable_cores()) + 64) // 64
        masks = {
            uuids[n]: nvml.answer(library, "nvmlDeviceGetCpuAffinity", handles[n], words) or ()
            for n in chosen
        }
    return {uuid: frozenset(_bits(mask)) for uuid, mask in masks.items()}


def _bits(mask: Sequence[int]) -> Iterator[int]:
    for at, word in enumerate(mask):
        yield from (64 * at + bit for bit in range(64) if word >> bit & 1)


def locks_on(slot: Slot) -> ExitStack | None:
    """Locks on all that the `slot` occupies, for all users of the host; None if one is held."""
    with suppress(BlockingIOError), ExitStack() as locks:
        for name in slot.resources:
            path = Path(tempfile.gettempdir(), f"gpubench-{name}.lock")
            # Without O_CREAT for the file of another user, which kernels protect in such folders.
            lock = KernelLock(path, os.O_RDONLY | (0 if path.exists() else os.O_CREAT))
            locks.enter_context(lock).acquire()
        return locks.pop_all()
    return None
