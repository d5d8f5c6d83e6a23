"""A machine as the checks read it, and what they find."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, Self

import psutil

from gpubench_plugin.environment import cuda_devices, nvml
from gpubench_plugin.environment.child_process import ChildError, facts_of

# Over which activity is counted: the kernel counts in ticks of 10 ms, 1% of it.
_SAMPLE_S: Final = 1.0

FindingOutcome = Literal["ok", "warning", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check found: `value` is the fact in words, or why it is `unknown`.

    A `warning` has an `advice`, and an unknown fact may have one. `name`, `section` and `device`
    (None: not of a GPU) are those of the check.
    """

    name: str = ""
    section: str = ""
    device: str | None = None
    outcome: FindingOutcome
    value: str
    advice: str = ""


def ok(value: str) -> Finding:
    """A finding that does not disturb measurements."""
    return Finding(outcome="ok", value=value)


def warning(value: str, advice: str) -> Finding:
    """A finding that disturbs measurements, and what to do about it."""
    return Finding(outcome="warning", value=value, advice=advice)


def unknown(reason: str, advice: str = "") -> Finding:
    """A fact that cannot be read."""
    return Finding(outcome="unknown", value=reason, advice=advice)


@dataclass(frozen=True, kw_only=True)
class Process:
    """Another process, and the time that it worked in percent of a core's."""

    pid: int
    name: str
    percent: float


@dataclass(frozen=True, kw_only=True)
class Activity:
    """Shares of the cores' time that others used, or the host gave away; the busiest processes."""

    busy: float
    stolen: float
    processes: Sequence[Process]

    @classmethod
    def sampled(cls, cores: frozenset[int]) -> Self | None:
        """Count what happens on these cores for a second; None if the kernel counts nothing."""
        for _ in psutil.process_iter(["cpu_percent"]):  # from here on it counts
            pass
        percents = psutil.cpu_times_percent(_SAMPLE_S, percpu=True)
        own = [times for core, times in enumerate(percents) if core in cores]
        if not any(map(sum, own)):
            return None
        idle = sum(times.idle + getattr(times, "iowait", 0.0) for times in own)
        stolen = sum(getattr(times, "steal", 0.0) for times in own)
        infos = [p.info for p in psutil.process_iter(["pid", "name", "cpu_num", "cpu_percent"])]
        processes = [
            Process(pid=info["pid"], name=info["name"], percent=info["cpu_percent"])
            for info in infos
            if info["cpu_percent"] and info["cpu_num"] in cores and info["pid"] != os.getpid()
        ]
        return cls(
            busy=1 - (idle + stolen) / (100 * len(own)),
            stolen=stolen / (100 * len(own)),
            processes=sorted(processes, key=lambda process: -process.percent),
        )


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU that this process may use: NVML's library and handle, and its number there."""

    index: int
    name: str
    library: Any
    handle: Any

    def answer(self, function: str, *arguments: object) -> Any:
        """Result of NVML's ``nvmlDevice…``; None if the library, the driver or the GPU lacks it."""
        return nvml.answer(self.library, f"nvmlDevice{function}", self.handle, *arguments)

    @property
    def memory_bytes(self) -> int | None:
        """All of its memory."""
        memory = self.answer("GetMemoryInfo")
        return memory and int(memory.total)


def _gpu(library: Any, index: int, handle: Any) -> Gpu | None:
    """The GPU of a handle; None for one that is lost."""
    if handle is None:
        return None
    name = nvml.text(nvml.answer(library, "nvmlDeviceGetName", handle))
    return Gpu(index=index, name=name or "?", library=library, handle=handle)


def _usable_cores() -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))  # macOS


def _temporary() -> Path | None:
    """Folder of temporary files; None if none is writable."""
    with suppress(FileNotFoundError):
        return Path(tempfile.gettempdir())
    return None


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What checks may ask. Tests give it another root, NVML and torch.

    `library` is the initialised ``pynvml``, None without it. `torch_command` prints the facts of
    torch, see :mod:`gpubench_plugin.cli.doctor.torch_facts`.
    """

    root: Path = Path("/")
    results: Path = Path("results")
    temporary: Path | None = field(default_factory=_temporary)
    cores: frozenset[int] = field(default_factory=_usable_cores)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    library: Any = None
    torch_command: Sequence[str] = (
        *(sys.executable, "-P", "-m"),
        "gpubench_plugin.cli.doctor.torch_facts",
    )

    def text(self, path: str) -> str:
        """Contents of the file `path` below the root; raises OSError."""
        return (self.root / path).read_text(encoding="utf-8", errors="replace")

    @property
    def cpu_folder(self) -> Path:
        """The kernel's folder of processors."""
        return self.root / "sys/devices/system/cpu"

    @cached_property
    def activity(self) -> Activity | None:
        """What the processors do while this process sleeps."""
        return Activity.sampled(self.cores)

    @property
    def gpus(self) -> Sequence[Gpu]:
        """The GPUs that this process may use, and that answer."""
        return [gpu for gpu in self.visible.values() if gpu is not None]

    @cached_property
    def visible(self) -> Mapping[int, Gpu | None]:
        """The GPUs that this process may use, or all where that is unclear; None for a lost one.

        It is if they differ: CUDA's number of one is then not NVML's, unless the order is stated.
        """
        handles = nvml.handles(self.library) or []
        gpus = [_gpu(self.library, index, handle) for index, handle in enumerate(handles)]
        uuids = ["" if gpu is None else nvml.text(gpu.answer("GetUUID")) or "" for gpu in gpus]
        indices = cuda_devices.visible_indices(self.environ.get("CUDA_VISIBLE_DEVICES"), uuids)
        kinds = {(gpu.name, gpu.memory_bytes) for gpu in gpus if gpu is not None}
        is_clear = not indices or cuda_devices.is_in_bus_order(len(kinds), self.environ)
        chosen = range(len(gpus)) if indices is None or not is_clear else sorted(indices)
        return {index: gpus[index] for index in chosen}

    @property
    def torch(self) -> Mapping[str, Any]:
        """Facts of torch, by a process of its own.

        Some of them start CUDA. Its context takes memory and, on an idle GPU, changes its clocks;
        it ends with the process. So the GPUs must have been read before.

        Raises:
            ChildError: the process failed, or printed no facts.
        """
        if isinstance(self._torch, ChildError):
            raise self._torch
        return self._torch

    @cached_property
    def _torch(self) -> Mapping[str, Any] | ChildError:
        try:
            facts: Mapping[str, Any] = facts_of(self.torch_command)
        except ChildError as error:
            return error
        return facts


@contextmanager
def this_machine(results: Path) -> Iterator[Machine]:
    """The machine that this process runs on, with NVML until exit."""
    with nvml.opened() as library:
        yield Machine(results=results, library=library)
