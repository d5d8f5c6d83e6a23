"""A machine as the checks read it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

import psutil

from gpubench_plugin.environment import cuda_devices, nvml
from gpubench_plugin.environment.hardware import usable_cores
from gpubench_plugin.system.child_process import ChildError, facts_of

# Over which activity is counted: the kernel counts in ticks of 10 ms, 1% of it.
_SAMPLE_S: Final = 1.0

Fact = tuple[str, str]
"""What a check found: the fact in words, and what to do where it disturbs measurements."""


class Unknown(Exception):
    """A check cannot tell: the message says why, and `advice` what helps, if anything."""

    def __init__(self, reason: str, advice: str = ""):
        super().__init__(reason)
        self.advice = advice


@dataclass(frozen=True, kw_only=True)
class Activity:
    """Shares of the cores' time that others used, or the host gave away; the busiest processes."""

    busy: float
    stolen: float
    busiest: Sequence[str]

    @classmethod
    def sampled(cls, cores: frozenset[int]) -> Self:
        """Count what happens on these cores for a second; raises Unknown."""
        for _ in psutil.process_iter(["cpu_percent"]):  # from here on it counts
            pass
        percents = psutil.cpu_times_percent(_SAMPLE_S, percpu=True)
        own = [times for core, times in enumerate(percents) if core in cores]
        if not any(map(sum, own)):
            raise Unknown("the kernel counts no time of these cores")
        idle = sum(times.idle + getattr(times, "iowait", 0.0) for times in own)
        stolen = sum(getattr(times, "steal", 0.0) for times in own)
        infos = [p.info for p in psutil.process_iter(["pid", "name", "cpu_num", "cpu_percent"])]
        others = [
            info
            for info in infos
            if info["cpu_percent"] and info["cpu_num"] in cores and info["pid"] != os.getpid()
        ]
        others.sort(key=lambda info: -info["cpu_percent"])
        return cls(
            busy=1 - (idle + stolen) / (100 * len(own)),
            stolen=stolen / (100 * len(own)),
            busiest=[f"{p['name']} ({p['pid']}) {p['cpu_percent']:.0f}%" for p in others[:3]],
        )


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU that this process may use: NVML's library and its number and handle there.

    That of a lost GPU is None, and so is each answer.
    """

    index: int
    library: Any
    handle: Any

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.answer("GetName") or "?"

    def answer(self, function: str, *arguments: object) -> Any:
        """Result of NVML's ``nvmlDevice…``; None if the library, the driver or the GPU lacks it."""
        return nvml.answer(self.library, f"nvmlDevice{function}", self.handle, *arguments)

    def require(self, function: str, *arguments: object) -> Any:
        """The same; raises Unknown instead of None."""
        if (answer := self.answer(function, *arguments)) is None:
            raise Unknown("the GPU or its driver does not tell")
        return answer


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What checks may ask. Tests give it another root, NVML and torch.

    `library` is the initialised ``pynvml``, None without it. `torch_command` prints the facts of
    torch, see :mod:`gpubench_plugin.cli.doctor.torch_facts`.
    """

    root: Path = Path("/")
    results: Path = Path("results")
    cores: frozenset[int] = field(default_factory=usable_cores)
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
    def activity(self) -> Activity:
        """What the processors do while this process sleeps; raises Unknown."""
        return Activity.sampled(self.cores)

    @property
    def gpus(self) -> Sequence[Gpu]:
        """The GPUs that this process may use, and that answer."""
        return [gpu for gpu in self.visible if gpu.handle is not None]

    @cached_property
    def visible(self) -> Sequence[Gpu]:
        """The GPUs that this process may use, also lost ones, or all where that is unclear.

        It is if they differ: CUDA's number of one is then not NVML's, unless the order is stated.
        """
        handles = nvml.handles(self.library) or []
        gpus = [Gpu(index=i, library=self.library, handle=each) for i, each in enumerate(handles)]
        uuids = [gpu.answer("GetUUID") or "" for gpu in gpus]
        indices = cuda_devices.visible_indices(self.environ.get("CUDA_VISIBLE_DEVICES"), uuids)
        kinds = {gpu.name for gpu in gpus if gpu.handle is not None}
        is_clear = not indices or cuda_devices.is_in_bus_order(len(kinds), self.environ)
        chosen = range(len(gpus)) if indices is None or not is_clear else sorted(indices)
        return [gpus[index] for index in chosen]

    @property
    def torch(self) -> Mapping[str, Any]:
        """Facts of torch; raises Unknown."""
        if self.torch_or_error["error"]:
            raise Unknown(f"torch cannot be examined: {self.torch_or_error['error']}")
        return self.torch_or_error

    @cached_property
    def torch_or_error(self) -> Mapping[str, Any]:
        """Facts of torch, by a process of its own, or why there are none.

        Some of them start CUDA. Its context takes memory and, on an idle GPU, changes its clocks;
        it ends with the process. So the GPUs must have been read before.
        """
        try:
            return {**facts_of(self.torch_command), "error": ""}
        except ChildError as error:
            return {"device": None, "precisions": None, "error": str(error)}
