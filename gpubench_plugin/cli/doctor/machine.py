"""A machine as the checks read it: files below a root, its clock, its GPUs, its torch."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from gpubench_plugin.cli.doctor.activity import Activity
from gpubench_plugin.environment import cuda_devices, nvml
from gpubench_plugin.environment.child_process import ChildError, facts_of

_SAMPLE_S: Final = 1.0
"""Over which activity is counted: the kernel counts in ticks of 10 ms, 1% of it."""


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


def _gpu(library: Any, index: int, handle: Any) -> Gpu | None:
    """The GPU of a handle; None for one that is lost."""
    if handle is None:
        return None
    name = nvml.text(nvml.answer(library, "nvmlDeviceGetName", handle))
    return Gpu(index=index, name=name or "?", library=library, handle=handle)


def _memory_bytes(gpu: Gpu) -> int | None:
    memory = gpu.answer("GetMemoryInfo")
    return None if memory is None else int(memory.total)


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
    sleep: Callable[[float], object] = time.sleep
    disk_usage: Callable[[Path], Any] = shutil.disk_usage
    torch_command: Sequence[str] = (
        *(sys.executable, "-P", "-m"),
        "gpubench_plugin.cli.doctor.torch_facts",
    )

    def text(self, path: str) -> str:
        """Contents of the file `path` below the root; raises OSError."""
        return (self.root / path).read_text(encoding="utf-8", errors="replace")

    @cached_property
    def activity(self) -> Activity:
        """What the processors do while this process sleeps; raises OSError."""
        return Activity.sampled(self.root / "proc", lambda: self.sleep(_SAMPLE_S))

    @cached_property
    def driver(self) -> str | None:
        """Version of NVIDIA's driver; None without one, or without ``pynvml``."""
        return nvml.text(nvml.answer(self.library, "nvmlSystemGetDriverVersion"))

    @cached_property
    def driver_cuda(self) -> int | None:
        """Version of CUDA of the driver: 13000 is 13.0."""
        return nvml.driver_cuda(self.library)

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
        kinds = {(gpu.name, _memory_bytes(gpu)) for gpu in gpus if gpu is not None}
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
